"""Start the program: the whole of it, or what runs where its libraries are not."""

import importlib.util
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """The console script."""
    if importlib.util.find_spec("typer") is None:
        from bisect_onnx.cli import bare

        sys.exit(bare.run(sys.argv[1:]))
    from bisect_onnx.cli import app

    app.main()
