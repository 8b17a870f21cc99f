"""Write the golden reports: one folder per case below tests/golden, in each format that the product writes.

    python -m scripts.write_golden

Run by scripts/golden. Review reads the diff; tests/render/test_golden.py compares the bytes.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bisect_onnx.core.report import Report
from bisect_onnx.render.as_json import AsJson
from bisect_onnx.render.as_terminal import AsTerminal
from tests.report_builders import CASES

__all__ = ["GOLDEN", "golden_texts"]

GOLDEN: Final = Path(__file__).resolve().parents[1] / "tests" / "golden"

# Any fixed width would do; this is the one that most terminals start with.
WIDTH: Final = 80


def golden_texts(report: Report) -> Mapping[str, str]:
    """File name to text: the report as JSON, and as a pipe of 80 columns gets it."""
    as_json, as_text = io.StringIO(), io.StringIO()
    AsJson().write(report, as_json)
    AsTerminal(width=WIDTH).write(report, as_text)
    return {"report.json": as_json.getvalue(), "report.txt": as_text.getvalue()}


def main() -> None:
    for case, build in CASES.items():
        folder = GOLDEN / case
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in golden_texts(build()).items():
            (folder / name).write_text(text, encoding="utf-8")
            print(folder / name)


if __name__ == "__main__":
    main()
