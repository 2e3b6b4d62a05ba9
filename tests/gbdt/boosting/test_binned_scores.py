"""Scores recomputed from bins are the scores of training, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm.gbdt.boosting.binned_scores import add_trees
from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.threads import Workers
from tests.gbdt.ranks.test_rank_equality import make_fit


@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression_l1"])
def test_rows_go_the_same_way_by_bins_as_by_values(objective: str) -> None:
    fit = make_fit(objective, {"n_estimators": 8, "num_leaves": 40, "max_cat_to_onehot": 10}, n_rows=1_500)
    model = fit.locally().booster
    assert any(tree.categorical.any() for tree in model.trees)
    with Workers(1) as workers:
        dataset = bin_table(fit.rows.table, fit.binning, workers)
    scores = np.repeat(model.base_scores[:, None], fit.rows.n_rows, axis=1)
    add_trees(dataset, model.trees, scores)
    np.testing.assert_array_equal(scores, model.raw_scores(fit.rows.table))
