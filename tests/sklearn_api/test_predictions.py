"""What a fitted estimator and its booster answer, and what an estimator says before it is fitted."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import dmlgbm
from dmlgbm import Booster, DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(240, 4))
SIGNAL = X[:, 0] - X[:, 1] * X[:, 2]
BINARY = (SIGNAL > 0).astype(int)
THREE = np.digitize(SIGNAL, [-0.7, 0.7])
GRADES = np.digitize(SIGNAL, [0.0, 1.0, 2.0])
SIZES = [40, 60, 80, 60]


def gain_of(grades: Any, score: Any) -> float:
    """NDCG with the gain 2**grade - 1; of equal scores the earlier row comes first."""
    discount = 1 / np.log2(np.arange(len(grades)) + 2)
    gains = 2.0**grades - 1
    return (gains[np.argsort(-score, kind="stable")] @ discount) / (np.sort(gains)[::-1] @ discount)


FITTED: dict[str, Any] = {
    "binary": DMLGBMClassifier(n_estimators=6).fit(X, BINARY),
    "several classes": DMLGBMClassifier(n_estimators=6).fit(X, THREE),
    "regression": DMLGBMRegressor(n_estimators=6).fit(X, SIGNAL),
    "ranking": DMLGBMRanker(n_estimators=6).fit(X, GRADES, group=SIZES),
}


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (kind(), method)
        for kind in (DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker)
        for method in dir(kind)
        if method.startswith(("predict", "staged_", "decision_function", "apply"))
    ],
)
def test_unfitted_estimator_says_that_it_is_not_fitted(estimator: Any, method: str) -> None:
    with pytest.raises(NotFittedError, match=f"This {type(estimator).__name__} instance is not fitted yet"):
        getattr(estimator, method)(X)


@pytest.mark.parametrize("kind", ["binary", "several classes"])
def test_decision_function_is_the_raw_score_and_log_probabilities_are_the_logarithm(kind: str) -> None:
    model = FITTED[kind]
    np.testing.assert_array_equal(model.decision_function(X), model.predict(X, raw_score=True))
    assert model.decision_function(X).shape == ((240,) if kind == "binary" else (240, 3))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), rtol=1e-12)


def test_log_probabilities_are_finite_where_the_probability_is_zero() -> None:
    model = DMLGBMClassifier(n_estimators=1).fit(X, BINARY)
    model.booster_.base_scores[:] = 5000.0
    assert (model.predict_proba(X)[:, 0] == 0).all()
    assert np.isfinite(model.predict_log_proba(X)).all()


@pytest.mark.parametrize("kind", FITTED)
def test_stretches_of_iterations_add_up_to_the_model(kind: str) -> None:
    model = FITTED[kind]
    first = model.predict(X, raw_score=True, num_iteration=2)
    middle = model.predict(X, raw_score=True, start_iteration=2, num_iteration=3)
    last = model.predict(X, raw_score=True, start_iteration=5)
    np.testing.assert_allclose(first + middle + last, model.predict(X, raw_score=True), atol=1e-12)
    assert np.abs(middle).max() > 0


def test_start_iteration_beyond_the_model_or_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="start_iteration=6 is beyond the model, which has 6 iterations"):
        FITTED["regression"].predict(X, start_iteration=6)
    with pytest.raises(TypeError, match=r"start_iteration must be a whole number, got 0\.5"):
        FITTED["regression"].predict(X, start_iteration=0.5)


def test_num_iteration_beyond_the_model_warns_once_and_uses_all() -> None:
    model = FITTED["binary"]
    with pytest.warns(UserWarning, match="num_iteration=50 is beyond the model, which has 6 iterations") as caught:
        predicted = model.predict(X, num_iteration=50)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(predicted, model.predict(X))


def test_ranker_scores_itself_by_the_gain_of_whole_queries() -> None:
    model = FITTED["ranking"]
    score, starts = model.predict(X), np.cumsum([0, *SIZES])
    expected = np.mean([gain_of(GRADES[a:b], score[a:b]) for a, b in pairwise(starts)])
    assert model.score(X, GRADES, group=SIZES) == pytest.approx(expected)
    assert model.score(X, GRADES, qid=np.repeat(range(4), SIZES)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="pass either group"):
        model.score(X, GRADES)


def test_area_under_the_curve_is_the_same_by_scores_and_probabilities() -> None:
    assert 0.5 < cross_val_score(DMLGBMClassifier(n_estimators=5), X, BINARY, scoring="roc_auc").mean() <= 1


def test_flat_init_score_of_several_classes_is_read_class_after_class() -> None:
    scores = RANDOM.normal(size=(240, 3))
    shaped = DMLGBMClassifier(n_estimators=2).fit(X, THREE, init_score=scores)
    flat = DMLGBMClassifier(n_estimators=2).fit(X, THREE, init_score=scores.ravel(order="F"))
    assert flat.booster_ == shaped.booster_


@pytest.mark.parametrize("kind", FITTED)
def test_booster_predicts_what_its_estimator_does(kind: str) -> None:
    model = FITTED[kind]
    expected = {"binary": lambda: model.predict_proba(X)[:, 1], "several classes": lambda: model.predict_proba(X)}
    np.testing.assert_array_equal(model.booster_.predict(X), expected.get(kind, lambda: model.predict(X))())
    raw = model.booster_.predict(X, start_iteration=1, num_iteration=3, raw_score=True)
    np.testing.assert_array_equal(raw, model.predict(X, raw_score=True, start_iteration=1, num_iteration=3))


def test_booster_predicts_frames_with_text_by_the_names_of_columns() -> None:
    frame = pd.DataFrame({"number": X[:, 0], "text": np.where(X[:, 1] > 0, "high", "low")})
    model = DMLGBMRegressor(n_estimators=3).fit(frame, SIGNAL)
    np.testing.assert_array_equal(model.booster_.predict(frame[["text", "number"]]), model.predict(frame))


def test_booster_is_saved_and_read_back(tmp_path: Path) -> None:
    model = FITTED["several classes"]
    model.booster_.save_model(tmp_path / "trees")
    model.save_model(tmp_path / "estimator")
    for name in ("trees", "estimator"):
        read = Booster.load_model(tmp_path / name)
        assert isinstance(read, Booster)
        np.testing.assert_array_equal(read.predict(X), model.predict_proba(X))
    assert Booster.load_model(tmp_path / "trees") == model.booster_
    loaded = dmlgbm.load_model(tmp_path / "estimator")
    assert isinstance(loaded.booster_, Booster)
    continued = DMLGBMClassifier(n_estimators=1).fit(X, THREE, init_model=Booster.load_model(tmp_path / "trees"))
    assert continued.n_iter_ == 7


def test_boosters_are_compared_by_what_they_hold_and_shown_in_one_line() -> None:
    model = FITTED["binary"]
    same = DMLGBMClassifier(n_estimators=6, n_jobs=1).fit(X, BINARY)
    other = DMLGBMClassifier(n_estimators=6, learning_rate=0.2).fit(X, BINARY)
    assert model.booster_ == same.booster_ == pickle.loads(pickle.dumps(model)).booster_
    assert hash(model.booster_) == hash(same.booster_)
    assert model.booster_ != other.booster_
    assert model.booster_ != "a model"
    assert len({model.booster_, same.booster_, other.booster_}) == 2
    assert repr(model.booster_) == "<Booster: 6 iterations, 6 trees, 4 features, objective 'binary'>"
