"""Arrays that begin at odd bytes, as slices of files and messages do, train like any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.dask_backend import ingestion
from dmlgbm.dask_backend.alignment import aligned
from dmlgbm.dask_backend.cluster import HERE
from dmlgbm.dask_backend.worker_holdings import drop_holdings, holdings_of
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.sklearn_api.clusters.partition_rows import RowCut


def unaligned(values: Any) -> Any:
    """A copy that begins at an odd byte."""
    values = np.asarray(values)
    odd = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    odd[...] = values
    assert not odd.flags.aligned
    return odd


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64])
def test_tables_targets_weights_and_scores_may_be_unaligned(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = (10 * rng.normal(size=(500, 4))).astype(dtype)
    y, weight = X[:, 0].astype(np.float64), rng.random(500)
    plain = DMLGBMRegressor(n_estimators=3).fit(X, y, sample_weight=weight, init_score=weight)
    odd = DMLGBMRegressor(n_estimators=3).fit(
        unaligned(X), unaligned(y), sample_weight=unaligned(weight), init_score=unaligned(weight)
    )
    assert odd.booster_.to_bytes() == plain.booster_.to_bytes()
    assert (odd.predict(unaligned(X)) == plain.predict(X)).all()


def test_labels_may_be_unaligned() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    labels = (X[:, 0] > 0).astype(np.int64)
    plain, odd = (DMLGBMClassifier(n_estimators=2).fit(X, y) for y in (labels, unaligned(labels)))
    assert odd.booster_.to_bytes() == plain.booster_.to_bytes()


@dataclass(frozen=True)
class Holder:
    parts: tuple[Any, ...]
    by_name: dict[str, Any]


def test_only_what_is_not_aligned_is_copied() -> None:
    values = np.arange(5.0)
    good = Holder((values, "text"), {"numbers": [values]})
    assert aligned(good) is good
    for bad in (Holder((unaligned(values),), {}), Holder((), {"numbers": [unaligned(values)]}), [unaligned(values)]):
        found = aligned(bad)
        assert found is not bad
        assert aligned(found) is found
    assert (aligned(unaligned(values)) == values).all()


def test_queries_to_watch_may_begin_in_an_unaligned_array_of_the_client() -> None:
    given = Rows(Table((NumericColumn(np.arange(4.0)),), 4), np.arange(4.0))
    cut = RowCut(((0, 0, 4),), unaligned(np.array([0, 2, 4])))

    def rows_of(parts: Sequence[Rows], rules: None, cut: RowCut) -> Rows:
        return replace(parts[0], group_starts=cut.group_starts)

    ingestion._watched("unaligned", 0, 0, rows_of, [given], None, cut, 0)
    part = holdings_of("unaligned", HERE).evaluation[0, 0]
    drop_holdings("unaligned")
    assert part.rows.group_starts is not None
    assert part.rows.group_starts.flags.aligned
    assert part.rows.group_starts.tolist() == [0, 2, 4]
