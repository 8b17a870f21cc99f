"""The program: its commands, and the exit status and message that each way of ending gets."""

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from bisect_onnx import __version__
from bisect_onnx.cli.capture import capture
from bisect_onnx.cli.demo import demo
from bisect_onnx.cli.endings import BAD_USAGE, INTERRUPTED, fail, fault, interrupted, out_of_memory
from bisect_onnx.cli.locate import locate
from bisect_onnx.errors import BisectOnnxError

__all__ = ["app", "main", "run"]

# Typer has its own copy of click and exports no name for the base of its usage errors.
CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]

# No rich markup: with it, --help would import and lay out tables for a quarter of a second.
app = typer.Typer(
    name="bisect-onnx",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(short_help="Find the node that introduces the error.")(locate)
app.command(short_help="Record what a model computes here, for a locate elsewhere.")(capture)
app.command(short_help="Watch locate find a planted fault.")(demo)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"bisect-onnx {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def program(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find out why an ONNX model does not agree with the PyTorch model it came from."""
    if context.invoked_subcommand is None:
        # Status 0 would mean parity to a script whose arguments got lost.
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(BAD_USAGE)


def main() -> NoReturn:
    """Run the command line of this process and end it."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; every way to end has its exit status here, and none shows a traceback unasked."""
    _survive_any_encoding()
    try:
        status = app(list(arguments), prog_name="bisect-onnx", standalone_mode=False)
        sys.stdout.flush()
    except BisectOnnxError as error:
        return fail(str(error), status=error.exit_code)
    except CommandLineError as error:
        return _bad_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except SystemExit as error:
        return _foreign_exit(error)
    except MemoryError:
        return out_of_memory()
    except Exception as error:  # noqa: BLE001  # the last resort: a message instead of a traceback
        unasked = "capture" in arguments[:1]  # it has no option to ask with
        return fault(error, verbose=unasked or any(argument in ("-v", "--verbose") for argument in arguments))
    if status == INTERRUPTED:  # how typer passes on a KeyboardInterrupt
        return interrupted()
    return int(status or 0)


def _survive_any_encoding() -> None:
    """Names that a stream cannot encode become escapes, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _bad_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "bisect-onnx"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return fail(f"{text}\n  next:     see '{command} --help'", status=BAD_USAGE)


def _foreign_exit(error: SystemExit) -> int:
    """Typer ends the program so on a broken pipe; anything else that calls exit() is not ours."""
    cause = error.__context__
    if isinstance(cause, OSError) and cause.errno == errno.EPIPE:
        return 0
    return fail(
        f"code that we called ended the program (exit status {error.code})\n"
        "  expected: a reference that imports and runs without calling exit()\n"
        "  next:     put such calls under if __name__ == '__main__'",
        status=BAD_USAGE,
    )
