"""`train`, `cv` and parts of models, for all ways of boosting and for rules of columns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import make_scorer, mean_absolute_error

import dmlgbm
from dmlgbm import Dataset, DMLGBMClassifier, DMLGBMRegressor, ParameterError, early_stopping, reset_parameter

RANDOM = np.random.default_rng(21)
FRAME = pd.DataFrame(RANDOM.normal(size=(360, 4)), columns=["up", "down", "other", "noise"])
SIGNAL = FRAME["up"] - FRAME["down"] + FRAME["other"] * FRAME["noise"] + 0.3 * RANDOM.normal(size=360)
BINARY = (SIGNAL > 0.8).astype(int)
SMALL: dict[str, Any] = {"num_leaves": 7, "learning_rate": 0.3, "min_child_samples": 5}
FOREST: dict[str, Any] = {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1}
DART: dict[str, Any] = {"boosting": "dart", "drop_rate": 0.6, "skip_drop": 0.0}
ORDER = {"up": 1, "down": -1}

MODES: dict[str, dict[str, Any]] = {
    "rf": FOREST,
    "dart": DART,
    "goss": {"boosting": "goss"},
    "bayesian": {"bootstrap_type": "Bayesian"},
    "monotone": {"monotone_constraints": ORDER},
    "interaction": {"interaction_constraints": [["up", "down"], ["other", "noise"]]},
    "smooth": {"path_smooth": 3.0, "extra_trees": True},
}


def settings(mode: str) -> dict[str, Any]:
    own = SMALL | MODES[mode]
    return {name: value for name, value in own.items() if not (mode == "rf" and name == "learning_rate")}


def estimator_named(params: dict[str, Any], kind: Any = DMLGBMRegressor) -> Any:
    return kind().set_params(n_estimators=8, **params)


@pytest.mark.parametrize("free_raw_data", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_train_is_the_estimator_and_bins_are_watched_like_columns(mode: str, free_raw_data: bool) -> None:
    params = settings(mode) | {"metric": ["l2", "r2", "neg_median_absolute_error"]}
    record: dict[str, dict[str, list[float]]] = {}
    data = Dataset(FRAME, SIGNAL, free_raw_data=free_raw_data)
    booster = dmlgbm.train(params, data, 8, [data], ["seen"], callbacks=dmlgbm.record_evaluation(record))
    model = estimator_named(params).fit(FRAME, SIGNAL, eval_set=[(FRAME, SIGNAL)], eval_names=["seen"])
    assert booster.to_bytes() == model.booster_.to_bytes()
    assert record == model.evals_result_
    if not free_raw_data:  # what is watched is what the model predicts
        assert booster.eval(data, "seen")[0].value == pytest.approx(record["seen"]["l2"][-1], rel=1e-9)


@pytest.mark.parametrize("mode", ["rf", "dart", "goss"])
def test_more_iterations_on_bins_go_on_as_with_columns(mode: str) -> None:
    params, record = settings(mode), dict[str, dict[str, list[float]]]()
    data = Dataset(FRAME, SIGNAL)
    before = dmlgbm.train(params, data, 4)
    after = dmlgbm.train(params, data, 4, [data], ["seen"], None, before, dmlgbm.record_evaluation(record))
    first = estimator_named(params).set_params(n_estimators=4).fit(FRAME, SIGNAL)
    second = estimator_named(params).set_params(n_estimators=4)
    second.fit(FRAME, SIGNAL, init_model=first, eval_set=[(FRAME, SIGNAL)], eval_names=["seen"])
    assert not data.has_table
    assert after.to_bytes() == second.booster_.to_bytes()
    assert record == second.evals_result_


@pytest.mark.parametrize("mode", MODES)
def test_folds_of_cv_are_models_of_train(mode: str) -> None:
    params, half = settings(mode), (np.arange(0, 360, 2), np.arange(1, 360, 2))
    data = Dataset(FRAME, SIGNAL, free_raw_data=False)
    found = dmlgbm.cv(params, data, 6, [half, half[::-1]], eval_train_metric=True, return_cvbooster=True)
    values = []
    for (rows, others), booster in zip([half, half[::-1]], found["cvbooster"].boosters, strict=True):
        own = Dataset(FRAME.iloc[rows], SIGNAL.iloc[rows])
        expected = dmlgbm.train(params, own, 6, Dataset(FRAME.iloc[others], SIGNAL.iloc[others]))
        assert booster == expected
        values.append(expected.best_score["valid_0"]["l2"])
    assert found["valid l2-mean"][-1] == pytest.approx(np.mean(values), rel=1e-12)


def test_changing_rates_and_scorers_reach_train_and_cv() -> None:
    rates = reset_parameter(learning_rate=lambda iteration: 0.5 * 0.8**iteration)
    scorer = make_scorer(mean_absolute_error, greater_is_better=False)
    data, params = Dataset(FRAME, SIGNAL, free_raw_data=False), SMALL | {"metric": [scorer]}
    booster = dmlgbm.train(params, data, 5, [data], callbacks=[rates])
    model = estimator_named(SMALL).set_params(n_estimators=5).fit(FRAME, SIGNAL, callbacks=[rates])
    assert booster == model.booster_ != dmlgbm.train(SMALL, data, 5)
    error = mean_absolute_error(SIGNAL, booster.predict(FRAME))
    assert booster.best_score["training"]["mean_absolute_error"] == pytest.approx(-error, rel=1e-9)
    rows = (np.arange(0, 300), np.arange(300, 360))
    found = dmlgbm.cv(params, data, 5, [rows], callbacks=[rates], return_cvbooster=True)
    assert found["cvbooster"].boosters[0] == dmlgbm.train(
        SMALL, Dataset(FRAME[:300], SIGNAL[:300]), 5, callbacks=[rates]
    )
    assert len(found["valid mean_absolute_error-mean"]) == 5


def test_constraints_by_name_hold_in_models_of_train() -> None:
    booster = dmlgbm.train(SMALL | {"monotone_constraints": ORDER}, Dataset(FRAME, SIGNAL), 20)
    steps = FRAME.iloc[:30].loc[lambda frame: frame.index.repeat(20)].reset_index(drop=True)
    steps["up"] = np.tile(np.linspace(-3, 3, 20), 30)
    assert (np.diff(booster.predict(steps).reshape(30, 20), axis=1) >= 0).all()
    with pytest.raises(ParameterError, match="monotone_constraints names 'upp', which is not a column"):
        dmlgbm.train({"monotone_constraints": {"upp": 1}}, Dataset(FRAME, SIGNAL), 2)


def test_early_stopping_takes_forests_and_refuses_dart() -> None:
    data, valid = Dataset(FRAME[:200], SIGNAL[:200], free_raw_data=False), Dataset(FRAME[200:], SIGNAL[200:])
    booster = dmlgbm.train(settings("rf"), data, 60, valid, callbacks=early_stopping(3, verbose=False))
    assert 0 < booster.best_iteration < booster.current_iteration() < 60
    error = np.mean((booster.predict(FRAME[200:]) - SIGNAL[200:]) ** 2)
    assert booster.best_score["valid_0"]["l2"] == pytest.approx(error, rel=1e-9)
    found = dmlgbm.cv(settings("rf"), data, 60, nfold=3, callbacks=early_stopping(3, verbose=False))
    assert 0 < len(found["valid l2-mean"]) < 60
    with pytest.raises(ParameterError, match="early stopping has no meaning with boosting_type='dart'"):
        dmlgbm.train(DART, data, 5, valid, callbacks=early_stopping(3))
    with pytest.raises(ParameterError, match="early stopping has no meaning with boosting_type='dart'"):
        dmlgbm.cv(DART, data, 5, callbacks=early_stopping(3))


def test_slices_of_forests_are_forests_and_slices_of_dart_add_up() -> None:
    forest = dmlgbm.train(settings("rf"), Dataset(FRAME, SIGNAL), 9)
    parts = [forest[:3], forest[3:6], forest[6:]]
    for number, part in enumerate(parts):
        assert part.averages
        np.testing.assert_array_equal(part.predict(FRAME), forest.predict(FRAME, 3 * number, 3))
    np.testing.assert_allclose(np.mean([part.predict(FRAME) for part in parts], axis=0), forest.predict(FRAME))
    dart = dmlgbm.train(settings("dart"), Dataset(FRAME, SIGNAL), 9)
    assert dart[:4] + dart[4:] == dart
    with pytest.raises(ValueError, match="average their trees"):
        _ = forest[:3] + forest[3:]
    with pytest.raises(ValueError, match="trees are averaged in one of them"):
        _ = dart + forest
    with pytest.raises(ParameterError, match="cannot go on from a model of boosting_type='rf'"):
        dmlgbm.train(SMALL, Dataset(FRAME, SIGNAL), 2, init_model=forest)


@pytest.mark.parametrize("mode", ["rf", "dart"])
def test_listings_hold_the_values_that_predictions_use(mode: str) -> None:
    booster = dmlgbm.train(settings(mode), Dataset(FRAME, SIGNAL), 6)
    leaves = booster.predict(FRAME, pred_leaf=True)
    sums = sum(
        np.array([booster.get_leaf_output(tree, leaf) for leaf in leaves[:, tree]]) for tree in range(leaves.shape[1])
    )
    dumped = json.loads(json.dumps(booster.dump_model()))
    assert dumped["average_output"] is (mode == "rf")
    added = sums / (6 if dumped["average_output"] else 1)
    np.testing.assert_allclose(dumped["base_scores"][0] + added, booster.predict(FRAME))
    listed = booster.trees_to_dataframe()
    of_leaves = listed[listed["left_child"].isna()].groupby("tree_index")["value"].apply(sorted)
    assert [sorted(tree.leaf_value.tolist()) for tree in booster.trees] == of_leaves.tolist()


def test_shares_of_classes_are_for_two_of_them() -> None:
    params = SMALL | {"pos_bagging_fraction": 0.5, "bagging_freq": 1}
    model = estimator_named(params, DMLGBMClassifier).fit(FRAME, BINARY)
    assert dmlgbm.train(params | {"objective": "binary"}, Dataset(FRAME, BINARY), 8) == model.booster_
    with pytest.raises(ParameterError, match="are for two classes"):
        dmlgbm.train(params | {"objective": "multiclass", "num_class": 3}, Dataset(FRAME, np.arange(360) % 3), 2)
