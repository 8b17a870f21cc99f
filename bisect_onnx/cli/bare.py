"""``bisect-onnx capture`` where only numpy, onnx and ONNX Runtime are installed: the same options, from argparse."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bisect_onnx.cli import parsing
from bisect_onnx.cli.endings import BAD_USAGE, fail, fault, interrupted, out_of_memory
from bisect_onnx.cli.progress import say
from bisect_onnx.errors import BisectOnnxError, CommandNotInstalledError

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """The exit status."""
    try:
        _require_capture(arguments)
        return _capture(parser().parse_args(arguments))
    except BisectOnnxError as error:
        return fail(str(error), status=error.exit_code)
    except parsing.UnusableTextError as error:
        text = f"Invalid value for {error.option}: {error}\n  next:     see 'bisect-onnx capture --help'"
        return fail(text, status=BAD_USAGE)
    except KeyboardInterrupt:
        return interrupted()
    except MemoryError:
        return out_of_memory()
    except SystemExit as error:  # argparse has shown its help, or said what is wrong
        return int(error.code or 0)
    except Exception as error:  # noqa: BLE001  # the last resort: a message instead of a traceback
        return fault(error, verbose=True)


def _require_capture(arguments: Sequence[str]) -> None:
    if list(arguments[:1]) not in (["capture"], ["-h"], ["--help"]):
        raise CommandNotInstalledError(command=arguments[0] if arguments else "")


def parser() -> argparse.ArgumentParser:
    """The parser; its options are those of `cli.capture`."""
    program = _Parser(prog="bisect-onnx", description="Of the commands, this environment can only run capture.")
    command = program.add_subparsers(required=True).add_parser(
        "capture",
        help="Record what a model computes here.",
        description="Record what an ONNX model computes on this machine, for a locate on another one.",
    )
    add = command.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="The ONNX model to run.")
    add("--output", "-o", type=Path, required=True, metavar="VALUES.npz", help="Where to write the values.")
    add(
        "--inputs", "-i", type=Path, metavar="FEEDS",
        help="Inputs: .npz with one array per input, .npy, .pt of tensors, or a folder of input_0.pb ... Without it, "
        "seeded random inputs are drawn from the model's signature.",
    )  # fmt: skip
    add("--seed", type=_count, default=0, metavar="N", help="Seed of the random inputs.")
    add(
        "--shape", action="append", metavar="NAME=1,3,224,224",
        help="Shape of one random input; repeatable.",
    )  # fmt: skip
    add(
        "--provider", action="append", metavar="NAME",
        help="Execution provider, in full or short (cpu, cuda); repeatable, in order of preference. Default: cpu.",
    )  # fmt: skip
    add(
        "--level", type=int, default=99, metavar="0|1|2|3|99",
        help="ONNX Runtime's optimisation level; 0 is none, 99 is all of them.",
    )  # fmt: skip
    add("--session-option", action="append", metavar="KEY=VALUE", help="A session option or config entry; repeatable.")
    add("--custom-ops", action="append", type=Path, metavar="LIB", help="Custom operator library; repeatable.")
    add(
        "--max-memory", metavar="512MiB",
        help="Memory for kept values. Default: half of what the machine has free.",
    )  # fmt: skip
    add("--force", action="store_true", help="Replace a file that is no earlier capture.")
    return program


def _count(text: str) -> int:
    """A whole number of 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 0 or more")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as the rest of the program does; also for the subcommands, which are of the same class."""

    def error(self, message: str) -> NoReturn:
        say(f"error: {message}\n  next:     see '{self.prog} --help'")
        sys.exit(BAD_USAGE)


def _capture(given: argparse.Namespace) -> int:
    from bisect_onnx.cli.run_capture import capture_and_show
    from bisect_onnx.pipeline.capture import CaptureRequest

    capture_and_show(
        CaptureRequest(
            model=given.model,
            output=given.output,
            inputs=given.inputs,
            seed=given.seed,
            shapes=parsing.parse_shapes(given.shape or ()),
            providers=tuple(given.provider or ("CPUExecutionProvider",)),
            level=given.level,
            session_options=parsing.parse_pairs(given.session_option or ()),
            custom_ops=tuple(given.custom_ops or ()),
            max_memory=parsing.parse_bytes(given.max_memory),
            force=given.force,
        )
    )
    return 0
