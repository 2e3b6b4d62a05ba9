"""The binned training table: made once, read by every tree.

Bins are cut from a sample of rows that depends on nothing but the seed and the row numbers, then every row is binned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.bin_sample import ROWS_FOR_PLAN, ColumnSummary, cut, repeats_of, sampled_feature, sampled_rows
from dmlgbm.gbdt.data.feature_bins import FeatureBins, NumericBins
from dmlgbm.gbdt.data.row_binning import bin_rows, empty_copy_by_column, stored
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.storage_plan import StoragePlan, plan_storage
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.kernels.layout import BinnedTable, BinStorage, Directions
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers


@dataclass(frozen=True)
class Dataset:
    """Rows as bins, with the bins of every feature of the original table."""

    storage: BinStorage
    plan: StoragePlan
    bins: tuple[FeatureBins, ...]
    n_rows: int
    segments: tuple[Segment, ...]
    # Upper bounds of the value bins of all used features, one after the other; the last of each is infinite.
    bounds: npt.NDArray[np.float64] = field(init=False, repr=False)
    first_bounds: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        used = [self.bins[feature] for feature in self.plan.features]
        bounds = [np.append(b.cuts, np.inf) if isinstance(b, NumericBins) else np.zeros(1) for b in used]
        object.__setattr__(self, "bounds", np.concatenate([np.zeros(0), *bounds]))
        object.__setattr__(self, "first_bounds", np.cumsum([0, *map(len, bounds)])[:-1])

    @property
    def binned(self) -> BinnedTable:
        """The rows as kernels take them."""
        return BinnedTable(self.storage, self.plan.layout)

    def empty_directions(self) -> Directions:
        """Room for what a split says of the rows; for marks only where the rows of sparse entries are listed."""
        n_marks = (self.n_rows + 7) // 8 if len(self.storage.entry_rows) else 0
        return Directions(np.empty(65_536, np.uint8), np.zeros(n_marks, np.uint8))


def bin_table(
    table: Table, parameters: BinningParameters, workers: Workers, weight: npt.NDArray[np.float64] | None = None
) -> Dataset:
    """Cut the bins of every feature, by rows that count as they weigh, and bin all rows."""
    cutting = sampled_rows(table.n_rows, parameters.sample_rows, parameters.seed)
    planning = sampled_rows(table.n_rows, ROWS_FOR_PLAN, parameters.seed)
    repeats = repeats_of(weight, cutting)
    bins = workers.run_each(lambda column: cut(column, cutting, parameters, repeats), table.columns)
    sampled = workers.run_each(
        lambda feature: sampled_feature(table.columns[feature], bins[feature], planning), range(table.n_features)
    )
    features = [f for f in range(table.n_features) if ColumnSummary(bins[f], sampled[f]).may_split]
    never_shared: frozenset[int] = frozenset()
    while True:
        plan = plan_storage(bins, sampled, features, never_shared)
        by_column = empty_copy_by_column(table.n_rows, len(plan.narrow_columns))
        rows, clashing = bin_rows(table, bins, plan, workers, by_column)
        if rows is not None:
            storage = stored(rows, by_column, plan)
            return Dataset(storage, plan, tuple(bins), table.n_rows, whole_table(table.n_rows))
        never_shared |= clashing
