"""Default parameters on tables with rare classes: no fit is much worse than knowing the class shares alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification, make_friedman1
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.gbdt.parameters import ParameterError


def classes_with_shares(n_classes, rarest, n_rows, seed=0, separation=1.0, flipped=0.01):
    shares = np.geomspace(1.0, 3 * rarest, n_classes)
    return make_classification(
        n_rows,
        n_features=12,
        n_informative=8,
        n_classes=n_classes,
        n_clusters_per_class=1,
        weights=list(shares / shares.sum()),
        class_sep=separation,
        flip_y=flipped,
        random_state=seed,
    )


def rare_positives(n_rows, seed=0):
    # Log-odds of a few columns, so that the rare class can be told apart, but not well.
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 8))
    score = -8.6 + 1.2 * X[:, 0] + 0.7 * X[:, 1]
    y = (random.random(n_rows) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    assert 3e-4 < y.mean() < 1e-3
    return X, y


def softmax_of_scores(n_classes, rarest, n_rows, seed, *, stepwise=False, categories=False):
    # Strong signal, labels drawn with the probabilities of a softmax over few columns.
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 10))
    effects = 1.5 * random.normal(size=(10, n_classes)) * (random.random((10, n_classes)) < 0.4)
    scores = np.log(np.geomspace(1.0, rarest * n_classes, n_classes)) + (np.floor(1.5 * X) if stepwise else X) @ effects
    if categories:
        category = random.integers(0, 40, n_rows)
        scores = scores + random.normal(size=(40, n_classes))[category]
        X = pd.DataFrame(X).assign(category=np.char.add("c", category.astype(str))).rename(columns=str)
    return X, (scores + random.gumbel(size=scores.shape)).argmax(axis=1)


def separable(n_classes, seed=0):
    X = np.random.default_rng(seed).normal(size=(6_000, 6))
    return X, np.digitize(X[:, 0] + 0.3 * X[:, 1], np.linspace(-2.5, 3.0, n_classes - 1))


def over_class_shares(X, y, **parameters):
    """The log loss on unseen rows, over that of the shares of the classes."""
    y = np.unique(y, return_inverse=True)[1]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    seen = np.isin(y_test, y_train)
    model = DMLGBMClassifier(**parameters).fit(X_train, y_train)
    shares = np.bincount(y_train, minlength=y.max() + 1)[model.classes_] / len(y_train)
    guess = np.tile(shares, (seen.sum(), 1))
    probabilities = model.predict_proba(X_test[seen])
    of_shares, of_model = (log_loss(y_test[seen], each, labels=model.classes_) for each in (guess, probabilities))
    return of_model / of_shares


TABLES = {
    "3 classes, rarest 1e-4": lambda: classes_with_shares(3, 1e-4, 10_000),
    "8 classes, rarest 1e-3": lambda: classes_with_shares(8, 1e-3, 6_000, seed=1),
    "30 classes, rarest 1e-4": lambda: classes_with_shares(30, 1e-4, 6_000, seed=3),
    # Labels flipped at random would make the rarest class of the table above less rare.
    "3 classes, 5 rows of the rarest": lambda: classes_with_shares(3, 1e-4, 20_000, flipped=0.0),
    "2 classes, 0.05 % positive": lambda: rare_positives(100_000),
    "2 classes, 12 rows positive": lambda: rare_positives(40_000),
    "2 classes, separable": lambda: separable(2),
    "6 classes, separable, two rare": lambda: separable(6),
    "3 classes, softmax": lambda: softmax_of_scores(3, 1e-3, 5_000, seed=7004),
    "8 classes, softmax": lambda: softmax_of_scores(8, 5e-4, 12_000, seed=7008),
    "5 classes, softmax of steps": lambda: softmax_of_scores(5, 1e-4, 10_000, seed=7009, stepwise=True),
    "4 classes, softmax with categories": lambda: softmax_of_scores(4, 1e-4, 10_000, seed=7010, categories=True),
}
EACH_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


@pytest.mark.medium
@EACH_TABLE
def test_default_fits_are_no_worse_than_the_class_shares(table):
    assert over_class_shares(*table()) < 1.1


@pytest.mark.slow
@pytest.mark.timeout(600)
@EACH_TABLE
def test_a_thousand_default_trees_are_no_worse_than_the_class_shares(table):
    assert over_class_shares(*table(), n_estimators=1_000) < 1.1


def test_trees_about_a_rare_class_must_beat_chance():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(20_000, 8)), (random.random(20_000) < 1e-3).astype(int)
    careful = DMLGBMClassifier(n_estimators=200).fit(X, y)
    assert sum(tree.n_nodes > 0 for tree in careful.booster_.trees) < 100
    kept = [tree for tree in careful.booster_.trees if tree.n_nodes]
    assert all(tree.gain[0] >= 1.0 for tree in kept)
    like_lightgbm = DMLGBMClassifier(n_estimators=200, max_delta_step=0).fit(X, y)
    assert all(tree.n_nodes for tree in like_lightgbm.booster_.trees)


@pytest.mark.parametrize("precision", ["fast", "exact"])
def test_every_precision_copes_with_rare_classes(precision):
    X, y = classes_with_shares(8, 1e-3, 6_000, seed=1)
    assert over_class_shares(X, y, precision=precision, n_estimators=40) < 1.1


def test_without_a_limit_rare_classes_diverge_as_in_lightgbm():
    # The test above can fail: this is what it guards against.
    like_lightgbm = {"max_delta_step": 0, "reg_lambda": 0.0}
    X, y = rare_positives(40_000)
    assert over_class_shares(X, y, **like_lightgbm) > 1.1 > over_class_shares(X, y)


@pytest.mark.parametrize("limit", [None, 0.5, 2.0])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_no_leaf_steps_further_than_the_limit(n_classes, limit):
    X, y = classes_with_shares(n_classes, 5e-3, 3_000)
    model = DMLGBMClassifier(n_estimators=10, max_delta_step=limit, reg_lambda=0.0).fit(X, y)
    steps = [abs(tree.leaf_value).max() / model.learning_rate for tree in model.booster_.trees]
    assert max(steps) <= (limit or 10.0) * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["regression", "regression_l1", "quantile", "poisson"])
def test_the_limit_holds_for_every_objective_of_regression(objective):
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    y = np.exp(3 * X[:, 0])
    model = DMLGBMRegressor(objective=objective, n_estimators=5, max_delta_step=0.25).fit(X, y)
    steps = [abs(tree.leaf_value).max() / model.learning_rate for tree in model.booster_.trees]
    assert 0.2 < max(steps) <= 0.25 * (1 + 1e-9)


def test_the_limit_holds_for_ranking():
    X, y = classes_with_shares(3, 0.1, 400)
    model = DMLGBMRanker(n_estimators=5, max_delta_step=0.25).fit(X, y, group=[100] * 4)
    assert max(abs(tree.leaf_value).max() for tree in model.booster_.trees) <= 0.025 * (1 + 1e-9)


def test_poisson_rates_survive_counts_far_above_the_mean():
    random = np.random.default_rng(0)
    X = random.normal(size=(6_000, 4))
    y = np.where(X[:, 0] > 2.9, 100_000.0, random.poisson(0.01, 6_000))
    model = DMLGBMRegressor(objective="poisson", n_estimators=100).fit(X, y)
    predictions = model.predict(X)
    assert np.isfinite(predictions).all()
    assert predictions.max() < 10 * y.max()


def test_an_alias_names_the_limit():
    assert DMLGBMClassifier(max_leaf_output=3.0).max_delta_step == 3.0


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_a_limit_out_of_range_is_named(value):
    with pytest.raises(ParameterError, match="max_delta_step"):
        DMLGBMClassifier(max_delta_step=value).fit(np.eye(4), [0, 1, 0, 1])


def test_a_limit_that_is_no_number_is_named():
    with pytest.raises(TypeError, match="max_delta_step"):
        DMLGBMClassifier(max_delta_step="large").fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("n_rows", [2_000, 6_000])
def test_skewed_weights_take_exact_sums_under_auto(n_rows):
    X, y = make_friedman1(n_rows, random_state=0)
    weight = np.random.default_rng(0).lognormal(0.0, 2.0, n_rows)
    auto, exact = (DMLGBMRegressor(precision=each).fit(X, y, weight).predict(X) for each in ("auto", "exact"))
    np.testing.assert_array_equal(auto, exact)


@pytest.mark.parametrize(("light", "expected"), [(0.5, 0), (0.01, 1), (1e-5, 2)])
def test_light_rows_choose_the_level_of_auto(light, expected):
    from dmlgbm.gbdt.growth.quantisation import coarsest_level

    weight = np.r_[np.full(50, light), np.ones(50)]
    assert coarsest_level(weight, 20, n_total_rows=100_000) == expected
    assert coarsest_level(None, 20, n_total_rows=100_000) == 0
