"""What a worker keeps for a fit: its binned rows, its evaluation rows and the rank that runs on them.

Binned partitions live here and not among Dask's own data, where they would be spilled, copied and counted twice;
the task that made one returns a receipt. Holdings belong to one fit on one worker, and are dropped with it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlgbm.dask_backend.cluster import HERE
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart
from dmlgbm.gbdt.data.partition_binning import BinningPlan
from dmlgbm.gbdt.ranks.rank import RankData, RankPartition

_lock = threading.Lock()
_holdings: dict[tuple[str, str], Holdings] = {}


@dataclass(frozen=True)
class Receipt:
    """Which share lies on which worker, a digest of its targets, and the features that did not share a column well."""

    number: int
    worker: str
    digest: int = 0
    clashing: frozenset[int] = frozenset()


class MissingRowsError(LookupError):
    """A worker does not hold the rows that its rank is to work on: it was started anew since they were placed."""


@dataclass
class Holdings:
    """The rows of one fit on one worker, by the number of their share."""

    partitions: dict[int, RankPartition] = field(default_factory=dict)
    evaluation: dict[tuple[int, int], EvaluationPart] = field(default_factory=dict)  # by set and share
    data: RankData | None = None
    assembled: frozenset[int] = frozenset()  # the shares in `data`
    rank: Any = None  # the running rank

    def shares(self) -> frozenset[int]:
        return self.assembled | self.partitions.keys()

    def rank_data(self, plan: BinningPlan, shares: frozenset[int]) -> RankData:
        """The rows of these shares in one piece; what was assembled before is used again."""
        for number in self.partitions.keys() - shares:
            del self.partitions[number]
        if self.data is not None and not self.assembled <= shares:
            raise MissingRowsError(
                f"this worker holds shares {sorted(self.assembled)}, but {sorted(shares)} are asked for"
            )
        missing = shares - self.shares()
        if missing:
            raise MissingRowsError(f"this worker does not hold the shares {sorted(missing)}")
        new = [self.partitions.pop(number) for number in sorted(self.partitions)]
        if new or self.data is None:
            parts = [RankData.assembled(plan, new)]
            if self.data is not None:
                parts.append(self.data)
                self.data = None
            self.data = parts[0] if len(parts) == 1 else RankData.joined(plan, parts)
        self.assembled = shares
        return self.data

    def evaluation_parts(self, shares: Sequence[tuple[int, int]]) -> list[EvaluationPart]:
        """The rows of these shares of evaluation sets."""
        missing = [each for each in shares if each not in self.evaluation]
        if missing:
            raise MissingRowsError(f"this worker does not hold the shares {missing} of evaluation sets")
        return [self.evaluation[each] for each in shares]


def holdings_of(fit_id: str, worker: str) -> Holdings:
    """The holdings of a fit on a worker, made on first use."""
    with _lock:
        return _holdings.setdefault((fit_id, worker), Holdings())


def this_worker() -> str:
    """The address of the worker that the running task is on."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return HERE


def held_shares(fit_id: str, dask_worker: Any = None) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """What a worker has: shares of training rows, and of the evaluation sets."""
    with _lock:
        held = _holdings.get((fit_id, _address(dask_worker)))
    return (frozenset(), frozenset()) if held is None else (held.shares(), frozenset(held.evaluation))


def clear_partitions(fit_id: str, dask_worker: Any = None) -> None:
    """Forget the binned rows, which are going to be binned another way."""
    with _lock:
        held = _holdings.get((fit_id, _address(dask_worker)))
    if held is not None:
        held.partitions.clear()


def drop_holdings(fit_id: str, dask_worker: Any = None) -> None:
    """The fit is over: stop its rank and forget its rows."""
    with _lock:
        held = _holdings.pop((fit_id, _address(dask_worker)), None)
    if held is not None and held.rank is not None:
        held.rank.stop("the fit is over")


def _address(dask_worker: Any) -> str:
    return HERE if dask_worker is None else str(dask_worker.address)
