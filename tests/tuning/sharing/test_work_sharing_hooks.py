"""The estimators' hooks for sharing work: every shared fit gives the bytes of a fit of its own."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from dmlgbm.sklearn_api import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

N_ROWS = 700


def rows(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with gaps and a text column, and a latent number that all targets are made from."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(N_ROWS, 4)), columns=list("abcd"))
    frame.loc[random.random(N_ROWS) < 0.1, "b"] = np.nan
    frame["town"] = random.choice(["x", "y", "z", "w", "v", "u"], N_ROWS)
    latent = frame["a"] + np.nan_to_num(frame["b"]) ** 2 + (frame["town"] == "x") + random.normal(size=N_ROWS) / 2
    return frame, latent.to_numpy()


FRAME, LATENT = rows()
WEIGHT = np.random.default_rng(1).random(N_ROWS) + 0.1
CASES: dict[str, tuple[Any, np.ndarray, dict[str, Any]]] = {
    "binary": (DMLGBMClassifier(), np.where(LATENT > 1, "yes", "no"), {}),
    "binary, weighted classes": (
        DMLGBMClassifier(
            class_weight="balanced", subsample=0.6, subsample_freq=2, colsample_bytree=0.7, random_state=3
        ),
        LATENT > 1,
        {"sample_weight": WEIGHT},
    ),
    "multiclass": (DMLGBMClassifier(), np.digitize(LATENT, [0, 1, 2]), {"init_score": np.tile(LATENT, (4, 1)).T / 9}),
    "regression": (DMLGBMRegressor(max_bin=40, precision="exact"), LATENT, {"init_score": LATENT / 2}),
    "quantile": (DMLGBMRegressor(objective="quantile", alpha=0.7), LATENT, {"sample_weight": WEIGHT}),
    "poisson": (DMLGBMRegressor(objective="poisson", grow_policy="depthwise"), np.round(np.exp(LATENT / 4)), {}),
    "forest": (DMLGBMClassifier(boosting_type="rf", subsample=0.6, subsample_freq=1), LATENT > 1, {}),
    "one-sided samples": (DMLGBMRegressor(boosting_type="goss", learning_rate=0.5), LATENT, {}),
    "survival": (
        DMLGBMRegressor(objective="cox"),
        np.exp(LATENT) * np.where(LATENT > 1.5, -1.0, 1.0),
        {"sample_weight": WEIGHT},
    ),
    "ranking": (
        DMLGBMRanker(objective="rank_xendcg"),
        np.clip(LATENT, 0, 4).astype(int),
        {"qid": np.arange(N_ROWS) // 20},
    ),
}
cases = pytest.mark.parametrize("case", CASES)


def estimator_for(case: str, n_estimators: int) -> Any:
    return clone(CASES[case][0]).set_params(n_estimators=n_estimators, num_leaves=9, min_child_samples=5, n_jobs=1)


def prepared_for(case: str) -> Any:
    estimator, y, fit_params = CASES[case]
    return estimator.prepare(FRAME, y, **fit_params)


def fitted_from_scratch(case: str, n_estimators: int) -> Any:
    _, y, fit_params = CASES[case]
    return estimator_for(case, n_estimators).fit(FRAME, y, **fit_params)


def assert_same_fit(one: Any, other: Any) -> None:
    """Bytes of the model, parameters and everything else that a fit stores."""
    states = [{**vars(each), "booster_": each.booster_.to_bytes()} for each in (one, other)]
    for state in states:
        state.pop("_run", None)
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_equal(states[1][name], value, err_msg=name)
    np.testing.assert_array_equal(one.predict(FRAME), other.predict(FRAME))


@cases
def test_fit_prepared_equals_fit(case: str) -> None:
    assert_same_fit(estimator_for(case, 6).fit_prepared(prepared_for(case)), fitted_from_scratch(case, 6))


@cases
def test_stages_of_one_run_equal_fits_of_their_length(case: str) -> None:
    prepared, before = prepared_for(case), None
    for n_estimators in (2, 3, 7):
        now = estimator_for(case, n_estimators)
        before = now.fit_prepared(prepared) if before is None else now.advance(prepared, n_estimators, since=before)
        assert_same_fit(now, fitted_from_scratch(case, n_estimators))


@cases
def test_a_run_goes_on_after_its_scores_are_lost(case: str) -> None:
    prepared = prepared_for(case)
    short = pickle.loads(pickle.dumps(estimator_for(case, 3).fit_prepared(prepared)))
    assert_same_fit(short.advance(prepared, 6), fitted_from_scratch(case, 6))


def test_an_estimator_that_was_taken_further_still_predicts_as_before() -> None:
    prepared = prepared_for("binary")
    short = estimator_for("binary", 3).fit_prepared(prepared)
    before = short.predict_proba(FRAME)
    long = estimator_for("binary", 6).advance(prepared, 6, since=short)
    np.testing.assert_array_equal(short.predict_proba(FRAME), before)
    assert_same_fit(estimator_for("binary", 9).advance(prepared, 9, since=short), fitted_from_scratch("binary", 9))
    assert_same_fit(long, fitted_from_scratch("binary", 6))


def test_predictions_at_stages_have_the_bits_of_plain_predictions() -> None:
    prepared = prepared_for("multiclass")
    random = np.random.default_rng(5)
    tables = [FRAME.iloc[random.permutation(N_ROWS)[:n]] for n in (300, 301, 40)]
    before = None
    for n_estimators in (1, 4, 4, 8):
        now = estimator_for("multiclass", n_estimators)
        before = now.fit_prepared(prepared) if before is None else now.advance(prepared, n_estimators, since=before)
        plain = fitted_from_scratch("multiclass", n_estimators)
        for table in tables:
            np.testing.assert_array_equal(now.predict_proba(table.copy()), plain.predict_proba(table))
            scores = now.predict_proba(table, raw_score=True)
            scores[:] = 0.0  # what a caller does to a result must not reach the next stage
        changed = tables[0].assign(a=0.0)
        np.testing.assert_array_equal(now.predict_proba(changed), plain.predict_proba(changed))


def test_several_fits_share_prepared_rows_at_once() -> None:
    prepared = prepared_for("binary, weighted classes")

    def fit(num_leaves: int) -> Any:
        return estimator_for("binary, weighted classes", 8).set_params(num_leaves=num_leaves).fit_prepared(prepared)

    leaves = [3, 5, 9, 17] * 2
    with ThreadPoolExecutor(4) as pool:
        shared = list(pool.map(fit, leaves))
    _, y, fit_params = CASES["binary, weighted classes"]
    for estimator, num_leaves in zip(shared, leaves, strict=True):
        alone = estimator_for("binary, weighted classes", 8).set_params(num_leaves=num_leaves)
        assert_same_fit(estimator, alone.fit(FRAME, y, **fit_params))


def test_warnings_come_with_each_fit_and_not_with_the_preparation() -> None:
    y = LATENT[:, None]
    estimator = DMLGBMRegressor(n_estimators=1, subsample=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = estimator.prepare(FRAME, y)
    for _ in range(2):
        with pytest.warns(DataConversionWarning), pytest.warns(UserWarning, match="subsample_freq"):
            clone(estimator).fit_prepared(prepared)


@pytest.mark.parametrize(
    ("parameters", "fit_params"),
    [
        ({"warm_start": True}, {}),
        ({"verbose": 1}, {}),
        ({"random_state": np.random.RandomState(0)}, {}),
        ({}, {"eval_set": [(FRAME, LATENT)]}),
        ({}, {"callbacks": [print]}),
        ({}, {"init_model": "model.bin"}),
    ],
)
def test_fits_whose_length_or_rows_depend_on_more_are_not_shared(parameters: Any, fit_params: Any) -> None:
    estimator = DMLGBMRegressor(**parameters)
    assert estimator.preparation_key(**fit_params) is None
    assert estimator.stage_parameter(**fit_params) is None
    with pytest.raises(ValueError, match=r"Call fit\."):
        estimator.prepare(FRAME, LATENT, **fit_params)


def test_a_function_as_objective_shares_rows_but_not_runs() -> None:
    estimator = DMLGBMRegressor(objective=lambda y, score: (score - y, np.ones_like(y)), n_estimators=3)
    assert estimator.stage_parameter() is None
    shared = clone(estimator).fit_prepared(estimator.prepare(FRAME, LATENT))
    assert shared.booster_.to_bytes() == estimator.fit(FRAME, LATENT).booster_.to_bytes()


def test_only_parameters_that_bins_depend_on_change_the_preparation() -> None:
    key = DMLGBMClassifier().preparation_key()
    assert DMLGBMClassifier(num_leaves=7, learning_rate=0.3).preparation_key() == key
    for other in (
        {"max_bin": 15},
        {"subsample_for_bin": 100},
        {"random_state": 1},
        {"categorical_feature": ["a"]},
        {"class_weight": "balanced"},
        {"class_weight": {0: 2.0}},
    ):
        estimator = DMLGBMClassifier(**other)
        assert estimator.preparation_key() != key
        with pytest.raises(ValueError, match="call prepare again"):
            estimator.fit_prepared(prepared_for("binary"))


def test_advance_refuses_another_run_and_fewer_iterations() -> None:
    prepared = prepared_for("binary")
    short = estimator_for("binary", 3).fit_prepared(prepared)
    with pytest.raises(ValueError, match="only n_estimators may differ"):
        estimator_for("binary", 6).set_params(learning_rate=0.5).advance(prepared, 6, since=short)
    with pytest.raises(ValueError, match="only n_estimators may differ"):
        estimator_for("binary", 6).set_params(class_weight="balanced").advance(prepared, 6, since=short)
    with pytest.raises(ValueError, match="3 or more"):
        short.advance(prepared, 2)
    assert_same_fit(short.advance(prepared, 5), fitted_from_scratch("binary", 5))


@cases
def test_rows_that_are_expected_are_scored_as_any_others(case: str) -> None:
    prepared, tested = prepared_for(case), rows(seed=5)[0]
    learnt_from = FRAME.copy()
    prepared.expect(learnt_from, tested)
    run = estimator_for(case, 2).fit_prepared(prepared)
    for n_estimators in (2, 5, 9):
        run = clone(run).set_params(n_estimators=n_estimators).advance(prepared, n_estimators, since=run)
        fresh = fitted_from_scratch(case, n_estimators)
        for X in (tested, learnt_from, tested.copy(), learnt_from.iloc[:50], learnt_from):
            np.testing.assert_array_equal(run.predict(X), fresh.predict(X))
            if hasattr(run, "predict_proba"):
                np.testing.assert_array_equal(run.predict_proba(X), fresh.predict_proba(X))
        np.testing.assert_array_equal(run.predict(tested, num_iteration=1), fresh.predict(tested, num_iteration=1))


def test_expected_rows_may_go_away() -> None:
    prepared = prepared_for("binary")
    prepared.expect(FRAME.copy(), FRAME.copy())
    run = estimator_for("binary", 2).fit_prepared(prepared)
    np.testing.assert_array_equal(run.predict(FRAME), fitted_from_scratch("binary", 2).predict(FRAME))


def test_unknown_categories_of_expected_rows_are_an_error_where_they_should_be() -> None:
    tested = FRAME.assign(town="elsewhere")
    prepared = prepared_for("binary")
    prepared.expect(FRAME, tested)
    estimator_for("binary", 2).fit_prepared(prepared).predict(tested)
    strict = estimator_for("binary", 2).set_params(handle_unknown="error").fit_prepared(prepared)
    with pytest.raises(ValueError, match="elsewhere"):
        strict.predict(tested)


@cases
def test_prepared_rows_serve_other_processes(case: str) -> None:
    prepared = prepared_for(case)
    prepared.expect(FRAME, FRAME)
    elsewhere = pickle.loads(pickle.dumps(prepared))
    assert_same_fit(estimator_for(case, 4).fit_prepared(elsewhere), fitted_from_scratch(case, 4))
