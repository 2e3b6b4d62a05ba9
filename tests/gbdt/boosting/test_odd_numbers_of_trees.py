"""Trees of one iteration that do not come out even over the threads are grown by all of them, to the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm import DMLGBMClassifier


@pytest.mark.parametrize("n_classes", [3, 5, 7])
@pytest.mark.parametrize("settings", [{}, {"subsample": 0.5, "subsample_freq": 1}, {"precision": "exact"}])
@pytest.mark.parametrize("weights", ["none", "whole", "any"])
def test_any_number_of_threads_grows_the_same_trees(
    monkeypatch: pytest.MonkeyPatch, n_classes: int, settings: dict[str, object], weights: str
) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    random = np.random.default_rng(n_classes)
    features = random.normal(size=(3000, 4))
    labels = random.integers(0, n_classes, 3000)
    labels[features[:, 0] > 0.5] = 0
    weight = {"none": None, "whole": random.integers(0, 3, 3000), "any": random.uniform(0.5, 2.0, 3000)}[weights]
    models = [
        DMLGBMClassifier(n_estimators=3, num_leaves=8, n_jobs=n_jobs, **settings).fit(
            features, labels, sample_weight=weight
        )
        for n_jobs in (1, 2, 3, 4)
    ]
    assert len({model.booster_.to_bytes() for model in models}) == 1
