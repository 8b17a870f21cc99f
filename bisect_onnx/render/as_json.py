"""Report -> JSON: the machine format, `schema/report-1.json`, with unrounded figures."""

import json
from typing import TextIO

from bisect_onnx.core.report import Report

__all__ = ["AsJson"]


class AsJson:
    """Writes `Report.to_dict` with sorted keys, so equal reports make equal bytes."""

    def write(self, report: Report, stream: TextIO) -> None:
        # ASCII only: names with lone surrogates survive whatever encoding the stream has.
        stream.write(json.dumps(report.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n")
