"""The hot loops one by one, on one thread: nanoseconds for each unit of work, and the memory bandwidth that makes.

Bandwidth counts the bytes a loop must touch at least (bins, words, row numbers), not whole cache lines, and is compared
with a large numpy copy measured in the same run. The fastest of several calls counts; the columns are generated, but
binned and packed by the engine itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from benchmarks.run import start_results
from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.growth.quantisation import Quantised, quantise, rounding_of
from dmlgbm.gbdt.kernels.histogram import build_histogram
from dmlgbm.gbdt.kernels.layout import NODE, SPLIT_RULES, Buffers, PackedGradients, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.partition import fill_goes_left, partition_rows
from dmlgbm.gbdt.kernels.quantise import pack_words
from dmlgbm.gbdt.kernels.split_search import search_features
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers

KERNEL = "kernel"
COPY_BYTES = 1 << 28
# Of the rows that a deep node holds, one in this many of all.
SPREAD = 32
LEAST_CALLS, LEAST_SECONDS = 5, 0.2


@dataclass(frozen=True)
class Figure:
    """The speed of one loop; `copy_share` is its bandwidth over that of a copy."""

    loop: str
    unit: str
    nanoseconds: float
    gigabytes_per_second: float
    copy_share: float


@dataclass(frozen=True)
class Rows:
    """What every loop works on: binned rows, their packed gradients, and the scratch space of one thread."""

    dataset: Dataset
    gradients: npt.NDArray[np.float32]
    hessians: npt.NDArray[np.float32]
    quantised: Quantised
    buffers: Buffers
    planes: npt.NDArray[np.int64]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's bins and packed word."""
        return self.dataset.storage.narrow.shape[1] + self.quantised.words.itemsize


def make_rows(n_rows: int, n_features: int) -> Rows:
    """Columns in turn continuous, skewed and of few values; gradients and hessians of a log loss."""
    generator = np.random.default_rng(0)
    makers: tuple[Callable[[], npt.NDArray[np.float32]], ...] = (
        lambda: generator.normal(size=n_rows).astype(np.float32),
        lambda: generator.exponential(size=n_rows).astype(np.float32),
        lambda: generator.integers(0, 24, n_rows).astype(np.float32),
    )
    table = Table(tuple(NumericColumn(makers[feature % 3]()) for feature in range(n_features)), n_rows)
    probability = generator.uniform(0.05, 0.95, n_rows)
    gradients = (probability - (generator.random(n_rows) < probability)).astype(np.float32)
    hessians = (probability * (1.0 - probability)).astype(np.float32)
    workers = Workers(1)
    dataset = bin_table(table, BinningParameters(), workers)
    segments = dataset.segments
    quantised = quantise(gradients, hessians, precision="auto", segments=segments, seed=0, tree=0, workers=workers)
    n_bins = max(int(dataset.plan.layout["bins"].max()), n_features) + 1
    n_positions = dataset.plan.n_positions
    buffers = Buffers(
        sums=np.empty((4, n_bins), np.int64),
        gains=np.empty(n_bins, np.float64),
        order=np.empty(n_bins, np.int64),
        usable=np.ones((2, n_features), np.uint8),
        directions=dataset.empty_directions(),
        block=np.empty(dataset.plan.joints.end, np.int64),
    )
    return Rows(dataset, gradients, hessians, quantised, buffers, np.empty((3, n_positions), np.int64))


def fastest(call: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Seconds of the fastest call; `prepare` runs before each and is not timed. The first call may compile."""
    prepare()
    call()
    durations: list[float] = []
    while len(durations) < LEAST_CALLS or sum(durations) < LEAST_SECONDS:
        prepare()
        started = perf_counter()
        call()
        durations.append(perf_counter() - started)
    return min(durations)


def copy_bandwidth() -> float:
    """Bytes a second that a numpy copy far larger than the caches reads and writes."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.empty(COPY_BYTES, np.uint8)
    return 2 * COPY_BYTES / fastest(lambda: np.copyto(target, source))


def measure(n_rows: int, n_features: int) -> Iterator[Figure]:
    """One figure for each loop, as soon as it is measured."""
    bandwidth = copy_bandwidth()
    yield Figure("numpy copy", "byte copied", 2e9 / bandwidth, bandwidth / 1e9, 1.0)
    rows = make_rows(n_rows, n_features)
    numbers = np.arange(n_rows, dtype=np.uint32)
    spread = numbers[np.random.default_rng(1).random(n_rows) < 1.0 / SPREAD]

    def figure(loop: str, unit: str, n_units: int, n_bytes: int, seconds: float) -> Figure:
        rate = n_bytes / seconds
        return Figure(loop, unit, seconds / n_units * 1e9, rate / 1e9, rate / bandwidth)

    # Gradient, hessian and word.
    yield figure("packing", "row", n_rows, 16 * n_rows, _packing_seconds(rows))
    for which, chosen in (("root", None), (f"one row in {SPREAD}", spread)):
        n_chosen = n_rows if chosen is None else len(chosen)
        number_bytes = 0 if chosen is None else 4
        cells, n_bytes = n_chosen * n_features, n_chosen * (rows.row_bytes + number_bytes)
        yield figure(f"histogram, {which}", "row and feature", cells, n_bytes, _histogram_seconds(rows, chosen))
        n_bins = int(rows.dataset.plan.layout["bins"].sum())
        packed = _keeps_packed(rows, n_chosen)
        plane_bytes = rows.planes.itemsize * rows.planes.shape[1] * (1 if packed else 3)
        yield figure(f"split search, {which}", "bin", n_bins, plane_bytes, _search_seconds(rows, n_chosen))
    for which, chosen in (("every row", numbers), (f"one row in {SPREAD}", spread)):
        seconds, n_right = _partition_seconds(rows, chosen)
        # A bin and a row number in, a row number out on both sides, the right ones copied back.
        n_bytes = 13 * len(chosen) + 8 * n_right
        yield figure(f"partition, {which}", "row", len(chosen), n_bytes, seconds)


def _packing_seconds(rows: Rows) -> float:
    packed = rows.quantised
    words = np.empty_like(packed.words)
    rounding = rounding_of(packed.gradient_scale, packed.hessian_scale, True, seed=0, tree=0)
    gradients, n_rows = PackedGradients(packed.packing, words), len(rows.gradients)
    return fastest(lambda: pack_words(rows.gradients, rows.hessians, 0, n_rows, 0, rounding, gradients))


def _keeps_packed(rows: Rows, n_rows: int) -> bool:
    return n_rows <= int(rows.quantised.packing["packed_rows"][0])


def _histogram_seconds(rows: Rows, chosen: npt.NDArray[np.uint32] | None) -> float:
    """Time the histogram of all rows or of those chosen, and leave it in `rows.planes`."""
    n_rows = len(rows.gradients) if chosen is None else len(chosen)
    numbers = np.empty(0, np.uint32) if chosen is None else chosen
    storage, gradients = rows.dataset.storage, rows.quantised.packed
    every_row, packed, block = chosen is None, _keeps_packed(rows, n_rows), rows.buffers.block
    return fastest(
        lambda: build_histogram(storage, gradients, numbers, 0, n_rows, every_row, block, packed, rows.planes)
    )


def _search_seconds(rows: Rows, n_rows: int) -> float:
    """Time the search of the histogram in `rows.planes`."""
    layout, packing = rows.dataset.plan.layout, rows.quantised.packing
    features = np.arange(len(layout), dtype=np.int64)
    packed = _keeps_packed(rows, n_rows)
    nodes = np.zeros(1, NODE)
    nodes["count"] = n_rows
    nodes["gradient"], nodes["hessian"] = _node_sums(rows, packed)
    tree = TreeNodes(nodes, np.zeros((1, 1), np.int32))
    rules = np.zeros(1, SPLIT_RULES)
    rules["min_rows"], rules["min_hessian"], rules["features_per_node"] = 20, 1, len(features)
    buffers, usable = rows.buffers, rows.buffers.usable[0]

    def begin() -> None:
        nodes["gain"], nodes["feature"] = 0.0, -1

    return fastest(
        lambda: search_features(layout, packing, rules, features, usable, rows.planes, packed, buffers, tree, 0),
        begin,
    )


def _node_sums(rows: Rows, packed: bool) -> tuple[int, int]:
    """Gradient and hessian of the node whose histogram is in `rows.planes`: those of the first feature's bins."""
    packing = rows.quantised.packing[0]
    bins = rows.planes[:, : int(rows.dataset.plan.layout["bins"][0])]
    if not packed:
        return int(bins[0].sum()), int(bins[1].sum())
    hessians = (bins[0] >> packing["hessian_shift"]) & packing["hessian_mask"]
    return int((bins[0] >> packing["gradient_shift"]).sum()), int(hessians.sum())


def _partition_seconds(rows: Rows, chosen: npt.NDArray[np.uint32]) -> tuple[float, int]:
    """Time a split of the first feature in the middle of its bins; also return how many rows go right."""
    table, layout = rows.dataset.binned, rows.dataset.plan.layout
    nodes: RecordArray = np.zeros(1, NODE)
    nodes["bin"] = layout["bins"][0] // 2
    tree = TreeNodes(nodes, np.zeros((1, 1), np.int32))
    implicit_goes_left = fill_goes_left(layout, tree, 0, rows.buffers.directions.goes_left)
    numbers, scratch = chosen.copy(), np.empty_like(chosen)
    n_left = 0

    def partition() -> None:
        nonlocal n_left
        n_left = partition_rows(
            table, 0, rows.buffers.directions, implicit_goes_left, numbers, scratch, 0, len(numbers), False
        )

    seconds = fastest(partition, prepare=lambda: np.copyto(numbers, chosen))
    return seconds, len(chosen) - n_left


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_kernels", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append JSON lines to this file")
    arguments = parser.parse_args()
    results = None if arguments.json is None else start_results(arguments.json)
    sizes = {"rows": arguments.rows, "features": arguments.features}
    print(f"{arguments.rows:,} rows, {arguments.features} features, one thread")
    print(f"{'loop':<28}{'ns':>8}  {'for each':<18}{'GB/s':>6}{'of copy':>9}")
    for figure in measure(**{f"n_{name}": size for name, size in sizes.items()}):
        share = f"{figure.copy_share:9.0%}"
        print(f"{figure.loop:<28}{figure.nanoseconds:8.3f}  {figure.unit:<18}{figure.gigabytes_per_second:6.1f}{share}")
        if results is not None:
            results.append(KERNEL, sizes | asdict(figure))


if __name__ == "__main__":
    main()
