"""A weight of one is no weight, a weight of zero is no row, and a whole weight is a row given that many times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.gbdt.data.feature_bins import cut_numeric
from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.data.row_weights import Repeats, settled_weights
from dmlgbm.gbdt.data.table import NumericColumn
from dmlgbm.gbdt.growth.quantisation import quantise
from dmlgbm.gbdt.metrics.exact_mean import ExactMean
from dmlgbm.gbdt.objectives.averages import percentile, weighted_mean
from dmlgbm.gbdt.threads import Workers

N_ROWS = 400
N_QUERIES = 20


def squared_error(y: Any, score: Any) -> tuple[Any, Any]:
    return score - y, np.full_like(y, 0.7)


OBJECTIVES: dict[str, Any] = {
    "binary": DMLGBMClassifier(),
    "multiclass": DMLGBMClassifier(),
    "regression": DMLGBMRegressor(),
    "regression_l1": DMLGBMRegressor(objective="regression_l1"),
    "quantile": DMLGBMRegressor(objective="quantile", alpha=0.3),
    "poisson": DMLGBMRegressor(objective="poisson"),
    **{name: DMLGBMRegressor(objective=name) for name in ("huber", "fair", "logcosh", "expectile", "mape", "tweedie")},
    "cross_entropy": DMLGBMRegressor(objective="cross_entropy"),
    "focal": DMLGBMClassifier(objective="focal", scale_pos_weight=3.0),
    "multiclassova": DMLGBMClassifier(objective="multiclassova"),
    "cox": DMLGBMRegressor(objective="cox"),
    "aft": DMLGBMRegressor(objective="aft"),
    "lambdarank": DMLGBMRanker(),
    "custom": DMLGBMRegressor(objective=squared_error),
}
objectives = pytest.mark.parametrize("objective", OBJECTIVES)


def estimator_for(objective: str, **options: Any) -> Any:
    small = {"n_estimators": 6, "num_leaves": 7, "max_bin": 31, "min_child_samples": 1, "precision": "exact"}
    return clone(OBJECTIVES[objective]).set_params(**(small | options))


def rows_for(objective: str, seed: int = 0, n_rows: int = N_ROWS) -> tuple[pd.DataFrame, Any, Any]:
    """X, y and the query of each row; more distinct values than bins, gaps, and text."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.normal(size=(n_rows, 3)), columns=list("abc"))
    X.loc[random.random(n_rows) < 0.1, "b"] = np.nan
    X["text"] = random.choice(["u", "v", "w"], n_rows)
    signal = X["a"] + X["b"].fillna(1.0) ** 2 + (X["text"] == "v") + 0.3 * random.normal(size=n_rows)
    targets = {
        "binary": np.where(signal > 1, "yes", "no"),
        "multiclass": np.digitize(signal, [0.5, 1.5]),
        "poisson": np.floor(np.exp(np.clip(signal, -1, 2))),
        "tweedie": np.floor(np.exp(np.clip(signal, -1, 2))),
        "cross_entropy": np.clip(signal / 4.0, 0.0, 1.0),
        "focal": np.where(signal > 1, "yes", "no"),
        "mape": 10.0 + 2.0 * signal,
        "multiclassova": np.digitize(signal, [0.5, 1.5]),
        **dict.fromkeys(("cox", "aft"), np.ceil(4 * np.exp(signal / 2)) * np.where(signal > 1, -1.0, 1.0)),
        "lambdarank": np.digitize(signal, [0.5, 1.5]),
    }
    return X, np.asarray(targets.get(objective, signal)), np.arange(n_rows) // (n_rows // N_QUERIES)


def fitted(estimator: Any, X: Any, y: Any, queries: Any, weight: Any = None) -> Any:
    given_queries = {"qid": queries} if isinstance(estimator, DMLGBMRanker) else {}
    return clone(estimator).fit(X, y, sample_weight=weight, **given_queries)


@pytest.mark.parametrize("precision", ["auto", "exact"])
@objectives
def test_weights_of_one_give_the_bytes_of_a_fit_without_weights(objective: str, precision: str) -> None:
    X, y, queries = rows_for(objective)
    estimator = estimator_for(objective, precision=precision)
    without = fitted(estimator, X, y, queries)
    ones = fitted(estimator, X, y, queries, np.ones(len(X)))
    assert ones.booster_.to_bytes() == without.booster_.to_bytes()


@pytest.mark.parametrize("options", [{}, {"precision": "auto", "subsample": 0.5, "subsample_freq": 1, "n_jobs": 2}])
@objectives
def test_weights_of_zero_give_the_bytes_of_a_fit_without_the_rows(objective: str, options: dict[str, Any]) -> None:
    X, y, queries = rows_for(objective)
    random = np.random.default_rng(1)
    weight = random.choice([0.0, 1.0, 0.5], len(X))
    weight[queries == 3] = 0.0
    # What only weightless rows hold is as good as absent: a category, the ends of a column.
    X.loc[(weight == 0) & (X["text"] == "u"), "text"] = "nowhere else"
    X.loc[weight == 0, "a"] *= 100.0
    estimator, kept = estimator_for(objective, **options), weight > 0
    weighted = fitted(estimator, X, y, queries, weight)
    dropped = fitted(estimator, X[kept], y[kept], queries[kept], weight[kept])
    assert weighted.booster_.to_bytes() == dropped.booster_.to_bytes()


def test_early_stopping_sets_no_row_aside_that_weighs_nothing() -> None:
    X, y, queries = rows_for("multiclass")
    weight = np.random.default_rng(2).choice([0.0, 1.0], len(X))
    estimator = estimator_for("multiclass", early_stopping=True, early_stopping_rounds=2, n_estimators=20)
    weighted = fitted(estimator, X, y, queries, weight)
    dropped = fitted(estimator, X[weight > 0], y[weight > 0], queries)
    assert weighted.booster_.to_bytes() == dropped.booster_.to_bytes()
    assert weighted.evals_result_ == dropped.evals_result_


def test_a_category_type_keeps_the_categories_of_weightless_rows() -> None:
    X, y, queries = rows_for("regression")
    X["text"] = X["text"].astype("category")
    weight = (X["text"] != "u").to_numpy(np.float64)
    weighted = fitted(estimator_for("regression"), X, y, queries, weight)
    dropped = fitted(estimator_for("regression"), X[weight > 0], y[weight > 0], queries)
    assert weighted.booster_.categories[3] == ("u", "v", "w")
    assert weighted.booster_.to_bytes() == dropped.booster_.to_bytes()


def test_classes_are_those_of_y_whatever_their_rows_weigh() -> None:
    X, y, queries = rows_for("multiclass")
    model = fitted(estimator_for("multiclass", class_weight="balanced"), X, y, queries, (y != 1).astype(np.float64))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X)[:, 1].max() < 1e-9


def test_errors_name_rows_as_they_were_passed() -> None:
    X, y, queries = rows_for("poisson")
    y = np.where(np.arange(len(X)) == 7, -1.0, y)
    weight = np.where(np.arange(len(X)) < 5, 0.0, 1.0)
    with pytest.raises(ValueError, match="row 7 is -1"):
        fitted(estimator_for("poisson"), X, y, queries, weight)


def test_rows_prepared_for_several_fits_leave_the_same_rows_out() -> None:
    X, y, _ = rows_for("binary")
    weight = np.random.default_rng(3).choice([0.0, 1.0, 3.0], len(X))
    scores = np.linspace(-1, 1, len(X))
    for further in ({}, {"init_score": scores}):
        estimator = estimator_for("binary", class_weight={"yes": 2.0})
        prepared = estimator.prepare(X, y, sample_weight=weight, **further)
        prepared.expect(X, X.iloc[:10])
        shared = clone(estimator).fit_prepared(prepared)
        own = clone(estimator).fit(X, y, sample_weight=weight, **further)
        assert shared.booster_.to_bytes() == own.booster_.to_bytes()
        np.testing.assert_array_equal(shared.predict_proba(X), own.predict_proba(X))


def repeated(weight: Any, *arrays: Any) -> list[Any]:
    rows = np.repeat(np.arange(len(weight)), weight.astype(int))
    return [each.iloc[rows].reset_index(drop=True) if hasattr(each, "iloc") else each[rows] for each in arrays]


@pytest.mark.parametrize(("precision", "n_threads"), [("exact", 1), ("exact", 2), ("auto", 1), ("auto", 2)])
@objectives
def test_whole_weights_predict_exactly_what_repeated_rows_do(objective: str, precision: str, n_threads: int) -> None:
    X, y, queries = rows_for(objective, seed=4)
    weight = np.random.default_rng(5).integers(0, 6, len(X)).astype(np.float64)
    estimator = estimator_for(objective, precision=precision, n_jobs=n_threads)
    if objective == "lambdarank":
        # Two equal rows take two positions in a ranking, so only whole queries can be repeated.
        weight = np.repeat([1.0, 2.0], len(X) // 2)
        again = queries >= N_QUERIES // 2
        twice = pd.concat([X, X[again]]), np.append(y, y[again]), np.append(queries, queries[again] + N_QUERIES)
        expected = fitted(estimator, *twice)
    else:
        expected = fitted(estimator, *repeated(weight, X, y, queries))
    found = fitted(estimator, X, y, queries, weight)
    np.testing.assert_array_equal(found.predict(X, raw_score=True), expected.predict(X, raw_score=True))


@pytest.mark.parametrize("objective", ["regression", "regression_l1", "quantile", "huber", "mape"])
def test_whole_weights_are_repeated_rows_at_any_precision_where_hessians_are_constant(objective: str) -> None:
    X, y, queries = rows_for(objective, seed=6)
    weight = np.random.default_rng(7).integers(1, 4, len(X)).astype(np.float64)
    estimator = estimator_for(objective, precision="auto")
    found = fitted(estimator, X, y, queries, weight).predict(X)
    expected = fitted(estimator, *repeated(weight, X, y, queries)).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_large_whole_weights_fill_no_field_of_a_word() -> None:
    """Blocks are short where weights are large: their sums must not run over."""
    X, y, queries = rows_for("binary", seed=8, n_rows=6_000)
    weight = np.where(np.arange(len(X)) % 2, 1 << 20, 1_000_000).astype(np.float64)
    # Without a penalty, and with limits in the unit of the weights, their unit does not matter.
    light = fitted(estimator_for("binary", reg_lambda=0.0), X, y, queries, weight / (1 << 12))
    heavy = fitted(estimator_for("binary", reg_lambda=0.0, min_child_weight=4.096), X, y, queries, weight)
    np.testing.assert_allclose(light.predict_proba(X), heavy.predict_proba(X), rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    objective=st.sampled_from(["binary", "regression", "regression_l1", "poisson", "expectile", "mape"]),
    precision=st.sampled_from(["auto", "exact"]),
)
def test_any_small_table_with_whole_weights_is_the_table_of_repeated_rows(
    seed: int, objective: str, precision: str
) -> None:
    random = np.random.default_rng(seed)
    n_rows = int(random.integers(4, 40))
    X = np.round(random.normal(size=(n_rows, 2)), int(random.integers(0, 3)))
    weight = random.integers(0, 5, n_rows).astype(np.float64)
    weight[:2] = [1.0, 2.0]
    y = random.integers(0, 3, n_rows).astype(np.float64)
    if objective == "binary":
        y = (y > 1).astype(np.float64)
    y[:2] = [0.0, 1.0]
    y += objective == "mape"
    options = {"max_bin": int(random.integers(2, 30)), "min_child_weight": 0.0, "precision": precision}
    estimator = estimator_for(objective, **options)
    found = fitted(estimator, X, y, None, weight).predict(X, raw_score=True)
    expected = fitted(estimator, *repeated(weight, X, y), None).predict(X, raw_score=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "check", [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data]
)
@pytest.mark.parametrize("precision", ["auto", "exact"])
@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor])
def test_scikit_learn_finds_weights_and_repeated_rows_equal(kind: Any, precision: str, check: Any) -> None:
    check(kind.__name__, kind(min_child_samples=1, n_estimators=20, precision=precision))


def steep_rows(n_rows: int) -> tuple[Any, Any]:
    """One row in twenty has an enormous count: the others are too small for packed sums."""
    random = np.random.default_rng(10)
    X = np.round(random.normal(size=(n_rows, 3)), 1)
    return X, np.where(random.random(n_rows) < 0.05, 3e5, random.poisson(np.exp(X[:, 0])))


def test_whole_weights_repeat_rows_under_auto_where_gradients_are_steep() -> None:
    X, y = steep_rows(300)
    weight = np.random.default_rng(11).integers(0, 6, len(X)).astype(np.float64)
    estimator = estimator_for("poisson", precision="auto", n_estimators=20)
    found = fitted(estimator, X, y, None, weight).predict(X, raw_score=True)
    expected = fitted(estimator, *repeated(weight, X, y), None).predict(X, raw_score=True)
    np.testing.assert_array_equal(found, expected)


def test_repeated_rows_and_not_given_ones_say_whether_a_table_is_small() -> None:
    weight = np.array([2.0, 0.0, 3.0])
    assert settled_weights(weight, most_repeated_rows=5).repeats is not None
    assert settled_weights(weight, most_repeated_rows=4).repeats is None


@pytest.mark.parametrize(("n_rows", "alike"), [(4_095, True), (4_096, False)])
def test_equal_rows_of_a_small_table_are_rounded_alike_under_auto(n_rows: int, alike: bool) -> None:
    values = np.full(n_rows, 0.3, np.float32)
    values[0] = 1.0
    with Workers(1) as workers:
        options: dict[str, Any] = {"segments": whole_table(n_rows), "seed": 0, "tree": 0, "workers": workers}
        words = quantise(values, values, precision="auto", **options).words
    assert (len(np.unique(words[:, 1:], axis=1).T) == 1) == alike


def test_the_largest_sums_of_a_small_table_do_not_touch() -> None:
    """All repeats of all rows in one sum: 4,095 times the largest gradient and hessian."""
    counts = np.array([4_000, 90, 5, 0], np.int64)
    largest = np.full(4, np.nextafter(np.float32(2.0), np.float32(0.0)))
    for sign in (1, -1):
        with Workers(1) as workers:
            options: dict[str, Any] = {"segments": whole_table(4), "seed": 0, "tree": 0, "workers": workers}
            repeats = Repeats(counts, 4_000, 4_095)
            made = quantise(sign * largest, largest, precision="auto", repeats=repeats, **options)
        packing, total = made.packing[0], int(made.words[0].sum())
        assert made.words.shape == (1, 4)
        assert total & int(packing["count_mask"]) == 4
        hessian = (total >> int(packing["hessian_shift"])) & int(packing["hessian_mask"])
        assert hessian / made.hessian_scale == pytest.approx(2.0 * 4_095, rel=1e-3)
        assert (total >> int(packing["gradient_shift"])) / made.gradient_scale == pytest.approx(
            sign * 2.0 * 4_095, rel=1e-3
        )


@pytest.mark.parametrize("precision", ["auto", "fast", "exact"])
@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor])
def test_four_rows_of_weight_one_are_split_like_four_rows(kind: Any, precision: str) -> None:
    X, y = [[1, 0], [1, 0], [1, 0], [0, 1]], [0, 0, 1, 0]
    estimator = kind(min_child_samples=1, n_estimators=3, precision=precision)
    without = clone(estimator).fit(X, y).booster_
    ones = clone(estimator).fit(X, y, sample_weight=np.ones(4)).booster_
    assert [len(model.trees[0].leaf_value) for model in (without, ones)] == [2, 2]
    assert ones.to_bytes() == without.to_bytes()


@settings(max_examples=50, deadline=None)
@given(data=st.data(), level=st.floats(0.01, 0.99))
def test_percentiles_and_means_of_counted_values_are_those_of_repeated_values(data: Any, level: float) -> None:
    values = np.array(data.draw(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)))
    counts = np.array([data.draw(st.integers(0, 9)) for _ in values], np.int64)
    counts[0] += 1
    every = np.repeat(values, counts)
    assert percentile(values, counts, level) == float(np.quantile(every, level))
    weighted, plain = ExactMean(), ExactMean()
    weighted.add(np.abs(values), counts.astype(np.float64))
    plain.add(np.abs(every), None)
    assert weighted.value() == plain.value()
    assert weighted_mean(values, counts.astype(np.float64)) == weighted_mean(every, None)


def test_bins_are_cut_where_repeated_values_would_be_cut() -> None:
    random = np.random.default_rng(9)
    values = np.round(random.exponential(size=3_000), 3)
    counts = random.integers(1, 9, len(values))
    everything = slice(None)
    expected = cut_numeric(NumericColumn(np.repeat(values, counts)), everything, 40).cuts
    for unit in (1, 1 << 20):
        found = cut_numeric(NumericColumn(values), everything, 40, repeats=counts * unit).cuts
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(cut_numeric(NumericColumn(values), everything, 40).cuts, expected)


def with_a_bad_row() -> tuple[Any, Any, Any]:
    """Row 7 is no count, and the first five rows weigh nothing."""
    X, y, _ = rows_for("poisson")
    numbers = np.arange(len(X))
    return X, np.where(numbers == 7, -1.0, y), np.where(numbers < 5, 0.0, 1.0)


@pytest.mark.parametrize("options", [{}, {"early_stopping": True, "validation_fraction": None}])
def test_errors_of_prepared_rows_name_rows_as_they_were_passed(options: dict[str, Any]) -> None:
    X, y, weight = with_a_bad_row()
    estimator = estimator_for("poisson", **options)
    with pytest.raises(ValueError, match="row 7 is -1"):
        estimator.fit_prepared(estimator.prepare(X, y, sample_weight=weight))


def test_gradients_of_prepared_rows_name_rows_as_they_were_passed() -> None:
    X, y, weight = with_a_bad_row()
    calls = []

    def worse_from_the_third_tree(target: Any, score: Any) -> Any:
        calls.append(len(target))
        bad = (target == -1.0) & (len(calls) > 2)
        return np.where(bad, np.nan, score - target), np.ones_like(target)

    estimator = estimator_for("regression", n_estimators=2).set_params(objective=worse_from_the_third_tree)
    prepared = estimator.prepare(X, y, sample_weight=weight)
    estimator.fit_prepared(prepared)
    with pytest.raises(ValueError, match="gradient of row 7 is nan"):
        clone(estimator).advance(prepared, 6, since=estimator)


def test_starting_scores_of_prepared_rows_are_those_of_all_rows_that_were_passed() -> None:
    X, y, _ = rows_for("multiclass")
    weight = np.where(np.arange(len(X)) < 5, 0.0, 1.0)
    estimator = estimator_for("multiclass")
    for scores in (np.linspace(-1, 1, 3 * len(X)), np.linspace(-1, 1, 3 * len(X)).reshape(-1, 3)):
        shared = clone(estimator).fit_prepared(estimator.prepare(X, y, sample_weight=weight, init_score=scores))
        own = clone(estimator).fit(X, y, sample_weight=weight, init_score=scores)
        assert shared.booster_.to_bytes() == own.booster_.to_bytes()
    scores = np.where(np.arange(len(X)) == 7, np.nan, 0.0)
    regressor = estimator_for("regression")
    with pytest.raises(ValueError, match="init_score holds NaN in row 7"):
        regressor.fit_prepared(regressor.prepare(X, (y == 1) * 1.0, sample_weight=weight, init_score=scores))
