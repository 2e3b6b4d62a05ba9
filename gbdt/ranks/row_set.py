"""Rows of a fit that lie in partitions somewhere: how these become the engine's types, and which of them form a share.

Rows are numbered over all shares, so a result does not depend on how many shares there are or where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dmlgbm.gbdt.data.rows import Rows


class Cut(Protocol):
    """Which rows of which partitions form a share."""

    @property
    def partitions(self) -> tuple[int, ...]: ...
    @property
    def n_rows(self) -> int: ...


RowsOf = Callable[[Sequence[Any], Any, Any], Rows]
"""From (partitions, rules, cut) to the rows of a share: the caller's knowledge."""


@dataclass(frozen=True)
class RowSet:
    """Rows of one kind: the rules that all workers share, and the shares."""

    rules: Any
    cuts: Sequence[Any]
    rows_of: RowsOf

    @property
    def first_rows(self) -> list[int]:
        return np.concatenate([[0], np.cumsum([cut.n_rows for cut in self.cuts])]).astype(int).tolist()

    @property
    def n_rows(self) -> int:
        return self.first_rows[-1]
