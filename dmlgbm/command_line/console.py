"""Where a command's output goes.

Text for people goes to stdout, unless stdout is taken by data (`--json`, `--out -`): then it goes to stderr.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any


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
            print(text, file=sys.stderr if self._on_stderr else sys.stdout, flush=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Print the result for programs, if it was asked for."""
        if self._as_json:
            print(json.dumps(_finite(result), ensure_ascii=False, allow_nan=False))
        sys.stdout.flush()


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
