"""Other threads predict while an estimator is fitted again: each prediction is of one model, the old or the new one."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor, load_model
from dmlgbm.neural import DMLMLPClassifier

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(120, 3))
TWO = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
FIVE = np.array(list("abcde"))[np.digitize(X[:, 0], [-1, -0.3, 0.3, 1])]
N_REFITS = 20


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def seen_while(refit: Callable[[int], Any], predict: Callable[[], Any], n_refits: int = N_REFITS) -> list[Any]:
    """What two threads got from `predict` while `refit` was called; their errors are raised here."""
    done = threading.Event()

    def asked() -> list[Any]:
        results = [predict()]
        while not done.is_set():
            results.append(predict())
        return results

    with switching_often(), ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(asked) for _ in range(2)]
        try:
            for number in range(n_refits):
                refit(number)
        finally:
            done.set()
        return [result for each in asking for result in each.result(timeout=60)]


def classifiers() -> tuple[DMLGBMClassifier, list[tuple[int, Any]]]:
    """A classifier and fits of it that differ in classes, in trees, and in whether they were stopped early."""
    model = DMLGBMClassifier(n_estimators=3, num_leaves=4, min_child_samples=5, n_jobs=1)
    return model, [(2, TWO), (9, FIVE)]


def refitting(model: DMLGBMClassifier, fits: list[tuple[int, Any]]) -> Callable[[int], Any]:
    def refit(number: int) -> None:
        n_estimators, y = fits[number % 2]
        model.set_params(n_estimators=n_estimators, early_stopping=number % 4 > 1).fit(X, y)

    return refit


PREDICTIONS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda model: model.predict(X),
    "predict_proba": lambda model: model.predict_proba(X),
    "staged_predict": lambda model: list(model.staged_predict(X)),
    "staged_predict_proba": lambda model: list(model.staged_predict_proba(X)),
    "apply": lambda model: model.apply(X),
    "num_iteration": lambda model: model.predict(X, num_iteration=5),
    "feature_importances_": lambda model: model.feature_importances_,
    "score": lambda model: model.score(X, TWO),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)).predict(X),
}


def test_each_prediction_is_of_one_fit() -> None:
    model, fits = classifiers()
    refit = refitting(model, fits)
    expected: dict[str, list[Any]] = {name: [] for name in PREDICTIONS}
    for number in range(4):
        refit(number)
        for name, predict in PREDICTIONS.items():
            expected[name].append(predict(model))
    found = seen_while(refit, lambda: {name: predict(model) for name, predict in PREDICTIONS.items()})
    for results in found:
        for name, result in results.items():
            assert any(_same(result, each) for each in expected[name]), name


def test_a_saved_model_is_of_one_fit(tmp_path: Path) -> None:
    model, fits = classifiers()
    refit = refitting(model, fits)
    probabilities = []
    for number in range(4):
        refit(number)
        probabilities.append(model.predict_proba(X))

    def saved() -> Any:
        path = tmp_path / f"{threading.get_ident()}.dml"
        model.save_model(path)
        return load_model(path).predict_proba(X)

    for found in seen_while(refit, saved, 12):
        assert any(_same(found, each) for each in probabilities)


def test_a_prediction_by_names_and_width_is_of_one_fit() -> None:
    model = DMLGBMRegressor(n_estimators=2, num_leaves=4, n_jobs=1, objective="poisson").fit(X, np.abs(X[:, 0]))
    wide, narrow = X, X[:, :2]

    def refit(number: int) -> None:
        objective = "poisson" if number % 2 else "regression"
        model.set_params(objective=objective).fit(narrow if number % 2 else wide, np.abs(X[:, 0]))

    expected = []
    for number in range(2):
        refit(number)
        expected.append(model.predict(narrow if number % 2 else wide))

    def predict() -> Any:
        try:
            return model.predict(wide)
        except ValueError as error:  # two features are expected
            assert "3 features" in str(error) and "2 features" in str(error)  # noqa: PT017, PT018
            return None

    found = [each for each in seen_while(refit, predict) if each is not None]
    assert all(_same(each, expected[0]) for each in found)


def test_a_run_that_grows_on_is_seen_at_one_length() -> None:
    model = DMLGBMRegressor(n_estimators=1, num_leaves=4, n_jobs=1)
    prepared = model.prepare(X, X[:, 0])
    prepared.expect(X, X)
    model.fit_prepared(prepared)
    lengths = [
        DMLGBMRegressor(n_estimators=n, num_leaves=4, n_jobs=1).fit(X, X[:, 0]).predict(X)
        for n in range(1, N_REFITS + 2)
    ]
    for found in seen_while(lambda number: model.advance(prepared, number + 2), lambda: model.predict(X)):
        assert any(_same(found, each) for each in lengths)


def test_a_failed_fit_and_a_fit_on_other_columns_leave_nothing_of_the_other() -> None:
    import pandas as pd

    model = DMLGBMClassifier(n_estimators=2, num_leaves=4)
    model.fit(pd.DataFrame(X, columns=list("abc")), FIVE)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.zeros(120))
    assert vars(model) == before
    model.fit(X[:, :2], TWO)
    assert not hasattr(model, "feature_names_in_")
    assert (model.n_features_in_, model.classes_.tolist()) == (2, ["no", "yes"])


def test_each_prediction_of_a_network_is_of_one_fit() -> None:
    model = DMLMLPClassifier(hidden_layer_sizes=(4,), max_epochs=1, random_state=0)
    fits = [(X, TWO), (X, FIVE)]
    expected = [model.fit(*each).predict_proba(X) for each in fits]
    model.fit(*fits[1])
    for found in seen_while(lambda number: model.fit(*fits[number % 2]), lambda: model.predict_proba(X), 15):
        assert any(_same(found, each) for each in expected)
    labels = [set(TWO), set(FIVE)]
    for found in seen_while(lambda number: model.fit(*fits[number % 2]), lambda: model.predict(X), 15):
        assert any(set(found) <= each for each in labels)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return np.array_equal(one, other)
