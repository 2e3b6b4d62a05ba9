"""`main`: parse the command line, run one command, turn every failure into one sentence and an exit code.

The commands import pyarrow, scikit-learn and numba when they run, so that `dmlgbm --help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from dmlgbm import __version__
from dmlgbm.command_line import bench, inspect, predict, train, warmup
from dmlgbm.command_line.console import Console, visible

_COMMANDS = {"train": train, "predict": predict, "inspect": inspect, "bench": bench, "warmup": warmup}
_FAILED, _INTERRUPTED, _READER_GONE = 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for an error, 130 for Ctrl-C."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            arguments.run(arguments)
    except KeyboardInterrupt:
        print("\ndmlgbm: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_GONE
    except Exception as error:  # noqa: BLE001 - this is where every failure ends
        if os.environ.get("DMLGBM_TRACEBACK"):
            traceback.print_exc()
        print(f"dmlgbm: {visible(_sentence(error))}", file=sys.stderr)
        return _FAILED
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, as all our errors are."""

    def error(self, message: str) -> NoReturn:
        self.exit(_FAILED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dmlgbm", description="Gradient-boosted trees on CSV and Parquet files.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dmlgbm {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        own = commands.add_parser(name, help=command.SUMMARY, description=command.SUMMARY, allow_abbrev=False)
        command.add_arguments(own)
        own.add_argument("--json", action="store_true", help="print one JSON object on stdout, text on stderr")
        own.set_defaults(run=_runner(command))
    return parser


def _runner(command: ModuleType) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        console = Console(
            as_json=arguments.json,
            data_on_stdout=getattr(arguments, "out", None) == "-",
            quiet=getattr(arguments, "quiet", False),
        )
        console.finish(command.run(arguments, console))

    return run


def _sentence(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    message = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError | OSError | ImportError) and message:
        return message
    if isinstance(error, MemoryError):
        return f"the memory is not enough ({message})" if message else "the memory is not enough"
    return f"unexpected {type(error).__name__}: {message} (DMLGBM_TRACEBACK=1 shows where)"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"dmlgbm: warning: {visible(str(message))}", file=sys.stderr)
