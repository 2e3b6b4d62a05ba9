"""From partitions on the workers to binned rows on the workers: samples, one set of bins, binning in place.

How partitions become rows is the caller's knowledge (`RowsOf`). The tasks here return small things only: a sample,
the summary of columns, a receipt. Rows are numbered over all shares, so the result does not depend on how many
shares there are or where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dmlgbm.dask_backend.alignment import aligned
from dmlgbm.dask_backend.cluster import Cluster, Handle
from dmlgbm.dask_backend.placement import place_shares
from dmlgbm.dask_backend.row_inputs import PartitionInputs, ReadFunction
from dmlgbm.dask_backend.worker_holdings import Receipt, clear_partitions, holdings_of, this_worker
from dmlgbm.dask_backend.worker_threads import threads_of_task
from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart
from dmlgbm.gbdt.data.partition_binning import (
    BinningPlan,
    ColumnSummary,
    SampledRows,
    plan_bins,
    sample_candidates,
    sample_rows,
    summarise_columns,
)
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.ranks.checkpoints import rows_digest
from dmlgbm.gbdt.ranks.losses import RanksLostError
from dmlgbm.gbdt.ranks.rank import RankPartition
from dmlgbm.gbdt.ranks.row_set import RowSet, RowsOf
from dmlgbm.gbdt.threads import Workers

# A sample of more bytes than this is cut into blocks of columns, one for each worker.
_BYTES_IN_ONE_PLACE = 16 << 20


@dataclass(frozen=True)
class Candidates:
    """Where the rows of a partition are that the sample may contain, and the share that is the whole partition."""

    handle: Handle  # of (the partition with these rows only, their numbers)
    cut: Any
    first_row: int


class PartitionSource:
    """Partitions that are read when they are needed, held while they are used, and read again after a loss."""

    def __init__(self, cluster: Cluster, read: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> None:
        self._cluster = cluster
        self._read = read
        self._inputs = inputs
        self._name = name
        self._n_reads = 0
        self._held: dict[int, Handle] = {}
        self.is_large = False  # too large to be held from one step to the next
        self.candidates: dict[int, Candidates] = {}  # by partition, of those that were sampled as they were read
        self.n_computed = 0  # partitions, each as often as it was

    def __len__(self) -> int:
        return len(self._inputs)

    def handles(self, numbers: Sequence[int]) -> list[Handle]:
        """The partitions with these numbers, read now unless they are held."""
        missing = [number for number in dict.fromkeys(numbers) if number not in self._held]
        if missing:
            # A name of its own for each reading: Dask must not take it for the one that was let go.
            name = f"{self._name}-{self._n_reads}"
            self._n_reads += 1
            read = self._cluster.read(self._read, [self._inputs[number] for number in missing], name)
            self._held.update(zip(missing, read, strict=True))
            self.n_computed += len(missing)
        return [self._held[number] for number in numbers]

    def let_go(self, number: int) -> None:
        """Let go of one partition."""
        self._held.pop(number, None)

    def release(self) -> None:
        """Let go of all partitions; tasks that still need one keep it until they are done."""
        self._held.clear()

    def end_step(self) -> None:
        """The tasks of one step have been handed over: what is too large to keep is read again for the next one."""
        if self.is_large:
            self.release()


@dataclass(frozen=True)
class PartitionRowSet(RowSet):
    """Rows whose partitions are values on the workers."""

    source: PartitionSource

    def parts_of(self, share: int) -> list[Handle]:
        return self.source.handles(self.cuts[share].partitions)

    def read(self, shares: Sequence[int]) -> list[Handle]:
        """Start reading all that these shares need, at once; the first partition of each share."""
        self.source.handles([partition for share in shares for partition in self.cuts[share].partitions])
        return self.source.handles([self.cuts[share].partitions[0] for share in shares])


def cut_bins(
    cluster: Cluster, rows: PartitionRowSet, n_features: int, parameters: BinningParameters
) -> list[ColumnSummary]:
    """What the sample of all rows says about every column."""
    n_total = rows.n_rows
    candidates = rows.source.candidates
    if sum(each.cut.n_rows for each in candidates.values()) == n_total:
        samples = cluster.map(
            _sampled_candidates,
            [
                (rows.rows_of, each.handle, rows.rules, each.cut, each.first_row, n_total, parameters)
                for _, each in sorted(candidates.items())
            ],
            "sample",
        )
    else:
        samples = cluster.map(
            _sampled,
            [
                (rows.rows_of, rows.parts_of(share), rows.rules, cut, first, n_total, parameters)
                for share, (cut, first) in enumerate(zip(rows.cuts, rows.first_rows, strict=False))
                if cut.n_rows
            ],
            "sample",
        )
    candidates.clear()
    rows.source.end_step()
    n_bytes = 8 * n_features * min(n_total, parameters.sample_rows)
    n_blocks = 1 if n_bytes <= _BYTES_IN_ONE_PLACE else min(n_features, len(cluster.workers()))
    bounds = [n_features * block // n_blocks for block in range(n_blocks + 1)]
    if n_blocks == 1:
        blocks = [(samples, parameters)]
    else:
        blocks = [
            (cluster.map(_columns, [(sample, *block) for sample in samples], f"columns-{block[0]}"), parameters)
            for block in pairwise(bounds)
        ]
    summaries = cluster.gather(cluster.map(_summarised, blocks, "summary"))
    return [summary for block in summaries for summary in block]


@dataclass(frozen=True)
class RowsToBin:
    """The training rows of a fit, ready to be binned wherever they are needed."""

    rows: PartitionRowSet
    summaries: Sequence[ColumnSummary]
    initial_model: Booster | None = None

    def bin_everywhere(self, cluster: Cluster, fit_id: str) -> tuple[BinningPlan, list[Receipt]]:
        """Bin all shares where they lie; features that clash anywhere get columns of their own everywhere."""
        never_shared: frozenset[int] = frozenset()
        while True:
            plan = plan_bins(self.summaries, never_shared)
            shares = range(len(self.rows.cuts))
            receipts = self.bin_shares(cluster, fit_id, plan, shares, f"bin-{len(never_shared)}")
            clashing = frozenset().union(*(receipt.clashing for receipt in receipts))
            if not clashing:
                return plan, receipts
            never_shared |= clashing
            cluster.run(clear_partitions, fit_id)

    def bin_shares(
        self,
        cluster: Cluster,
        fit_id: str,
        plan: BinningPlan,
        shares: Sequence[int],
        name: str,
        already: dict[str, int] | None = None,
    ) -> list[Receipt]:
        """Bin some shares, each on a worker that has its rows or room for them."""
        rows = self.rows
        needed = rows.read(shares)
        threads = cluster.workers()
        workers = place_shares([rows.cuts[share].n_rows for share in shares], cluster.holders(needed), threads, already)
        shared_plan, model = cluster.share(plan, f"plan-{name}"), cluster.share(self.initial_model, f"start-{name}")
        first_rows = rows.first_rows
        tasks = [
            (fit_id, share, rows.rows_of, rows.parts_of(share), rows.rules, rows.cuts[share], first_rows[share])
            for share in shares
        ]
        arguments = [(*task, shared_plan, model) for task in tasks]
        handles = cluster.map(_binned, arguments, name, workers)
        del tasks, arguments, needed
        rows.source.end_step()
        return cluster.gather(handles)


def place_evaluation(
    cluster: Cluster,
    fit_id: str,
    number: int,
    rows: PartitionRowSet,
    shares: Sequence[int],
    workers: Sequence[str],
    name: str,
) -> list[Receipt]:
    """Put the rows of an evaluation set on the workers that are going to watch them."""
    first_rows = rows.first_rows
    holders = cluster.holders(rows.read(shares))
    threads = {worker: threads for worker, threads in cluster.workers().items() if worker in workers}
    if not threads:  # they may be paused
        threads = {worker: threads for worker, threads in cluster.alive().items() if worker in workers}
    if not threads:
        raise RanksLostError("all workers that held training rows are gone")
    places = place_shares([rows.cuts[share].n_rows for share in shares], holders, threads)
    arguments = [
        (fit_id, number, share, rows.rows_of, rows.parts_of(share), rows.rules, rows.cuts[share], first_rows[share])
        for share in shares
    ]
    handles = cluster.map(_watched, arguments, name, places)
    del arguments
    rows.source.end_step()
    return cluster.gather(handles)


def _sampled(
    rows_of: RowsOf, parts: list[Any], rules: Any, cut: Any, first_row: int, n_total: int, parameters: BinningParameters
) -> SampledRows:
    rows = rows_of(*aligned((parts, rules, cut)))
    return sample_rows(
        rows.table, first_row_number=first_row, n_total_rows=n_total, parameters=parameters, weight=rows.weight
    )


def _sampled_candidates(
    rows_of: RowsOf,
    candidates: tuple[Any, Any],
    rules: Any,
    cut: Any,
    first_row: int,
    n_total: int,
    parameters: BinningParameters,
) -> SampledRows:
    partition, rows = aligned(candidates)
    data = rows_of([partition], *aligned((rules, cut)))
    return sample_candidates(
        data.table,
        rows,
        cut.n_rows,
        first_row_number=first_row,
        n_total_rows=n_total,
        parameters=parameters,
        weight=data.weight,
    )


def _columns(sample: SampledRows, first: int, last: int) -> SampledRows:
    return sample.of_columns(first, last)


def _summarised(samples: list[SampledRows], parameters: BinningParameters) -> list[ColumnSummary]:
    with Workers(threads_of_task(1)) as workers:
        return summarise_columns(aligned(samples), parameters, workers)


def _binned(
    fit_id: str,
    share: int,
    rows_of: RowsOf,
    parts: list[Any],
    rules: Any,
    cut: Any,
    first_row: int,
    plan: BinningPlan,
    initial_model: Booster | None,
) -> Receipt:
    rows, plan = rows_of(*aligned((parts, rules, cut))), aligned(plan)
    address = this_worker()
    with Workers(threads_of_task(1)) as workers:
        partition = RankPartition.of(rows, plan, first_row, aligned(initial_model), workers)
    clashing = partition.binned.clashing
    if not clashing:
        holdings_of(fit_id, address).partitions[share] = partition
    digest = rows_digest(first_row, (rows.target, rows.weight, rows.init_score, rows.position))
    return Receipt(share, address, digest, clashing)


def _watched(
    fit_id: str, number: int, share: int, rows_of: RowsOf, parts: list[Any], rules: Any, cut: Any, first_row: int
) -> Receipt:
    rows = rows_of(*aligned((parts, rules, cut)))
    address = this_worker()
    holdings_of(fit_id, address).evaluation[number, share] = EvaluationPart(rows, first_row)
    return Receipt(share, address)
