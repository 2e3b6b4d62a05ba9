"""Where a command's output goes.

Text for people goes to stdout, unless stdout is taken by data (`--json`, `--out -`): then it goes to stderr.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

# Control characters, among them those that begin an escape sequence, line breaks, and marks that turn text around.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Console:
    """The output of one command."""

    def __init__(self, *, as_json: bool = False, data_on_stdout: bool = False, quiet: bool = False) -> None:
        self._as_json = as_json
        self._on_stderr = as_json or data_on_stdout
        self._quiet = quiet

    @property
    def shows_progress(self) -> bool:
        """Whether somebody watches a terminal; progress is drawn on stderr."""
        return not self._quiet and sys.stderr.isatty()

    def say(self, text: str = "") -> None:
        """Print text for people."""
        if not self._quiet:
            text = "\n".join(map(visible, text.split("\n")))
            print(text, file=sys.stderr if self._on_stderr else sys.stdout, flush=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Print the result for programs, if it was asked for."""
        if self._as_json:
            text = json.dumps(_finite(result), ensure_ascii=False, allow_nan=False)
            print(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
        sys.stdout.flush()


def visible(text: str) -> str:
    """Text from a file as it may be sent to a terminal: what would control the terminal is shown by its code."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def plural(number: int, unit: str) -> str:
    """ "1 row", "2,000 rows"."""
    if number == 1:
        return f"1 {unit}"
    return f"{number:,} {unit}s"


def size_text(n_bytes: int) -> str:
    """A file size as people read it."""
    return f"{n_bytes / 1024:,.1f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):,.1f} MiB"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null takes their place."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
