"""The threads of one rank: scratch space for each, and how they share the leaves of a round and the rows of a root."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.grower import search_buffers
from dmlgbm.gbdt.growth.round_grower import GrowingTree
from dmlgbm.gbdt.kernels.data_parallel import build_share, join_shares
from dmlgbm.gbdt.kernels.layout import BinStorage, Buffers
from dmlgbm.gbdt.threads import ROWS_WORTH_A_THREAD, Workers


class LeafThreads:
    """Threads that take leaves in turn; `taken` counts how many are taken."""

    def __init__(self, dataset: Dataset, num_leaves: int, workers: Workers) -> None:
        self._workers = workers
        self.buffers = [search_buffers(dataset, num_leaves) for _ in range(workers.n_threads)]
        self.planes = np.empty((workers.n_threads, 3, dataset.plan.n_positions), np.int64)
        self.taken = np.zeros(1, np.int64)

    def run(self, work: Callable[[int, Buffers], None], n_leaves: int) -> None:
        """Let up to as many threads as there are leaves call work(thread, its scratch space)."""
        self.taken[0] = 0
        self._workers.run([partial(work, *thread) for thread in enumerate(self.buffers[:n_leaves])])

    def build_root(self, storage: BinStorage, tree: GrowingTree) -> npt.NDArray[np.int64]:
        """The histogram of the root's rows that are here, in the first thread's planes; enters the root's sums."""
        gradients, rows = tree.space.gradients, tree.rows.numbers
        n_rows = int(tree.rows.counts[0])
        packed = n_rows <= int(gradients.packing["packed_rows"][0])
        n_shares = 1 if packed else min(len(self.buffers), 1 + n_rows // ROWS_WORTH_A_THREAD)
        bounds = [n_rows * k // n_shares for k in range(n_shares + 1)]

        def build(share: int) -> None:
            first, last = bounds[share], bounds[share + 1]
            block, planes = self.buffers[share].block, self.planes[share]
            build_share(storage, gradients, rows, first, last, tree.every_row, block, packed, planes)

        self._workers.run([partial(build, share) for share in range(n_shares)])
        join_shares(storage, gradients, rows, tree.every_row, packed, self.planes, n_shares, tree.tree.nodes)
        return self.planes[0]
