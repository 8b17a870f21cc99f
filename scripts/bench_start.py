"""How long a command takes before it does anything, and what it imports for that."""

import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

__all__ = ["start_up"]

MOST_SECONDS: Final = 0.4
COMMANDS: Final = (("--help",), ("locate", "--help"), ("demo", "--help"))

LOADED: Final = """
import sys
from bisect_onnx.cli.app import run
run(sys.argv[1:])
print(",".join(name for name in ("torch", "onnxruntime", "onnx", "numpy") if name in sys.modules), file=sys.stderr)
"""


def start_up(*, rounds: int) -> Iterator[str]:
    """The median over whole processes."""
    for arguments in COMMANDS:
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "bisect_onnx", *arguments], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        done = subprocess.run([sys.executable, "-c", LOADED, *arguments], check=True, capture_output=True, text=True)
        loaded = done.stderr.strip() or "none of torch, onnxruntime, onnx, numpy"
        middle = median(seconds)
        met = "met" if middle <= MOST_SECONDS else "NOT MET"
        command = " ".join(("bisect-onnx", *arguments))
        yield f"{command:40}{middle:6.2f} s  at most {MOST_SECONDS} s: {met}; imports {loaded}"
