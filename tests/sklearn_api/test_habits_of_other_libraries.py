"""What users of LightGBM, XGBoost and scikit-learn write is accepted where it means the same, else answered."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(300, 4))
X[:, 3] = RANDOM.integers(0, 5, 300)
SIGNAL = X[:, 0] + np.abs(X[:, 1]) + (X[:, 3] == 2)
BINARY = (SIGNAL > 1).astype(int)
THREE = np.digitize(SIGNAL, [0.5, 1.5])
WEIGHT = RANDOM.uniform(0.5, 2, 300)
OTHER = RANDOM.normal(size=(100, 4))
OTHER[:, 3] = RANDOM.integers(0, 5, 100)
OTHER_SIGNAL = OTHER[:, 0] + np.abs(OTHER[:, 1])
SMALL = {"n_estimators": 4, "num_leaves": 7}


def model_bytes(**parameters: Any) -> bytes:
    return DMLGBMRegressor(**SMALL | parameters).fit(X, SIGNAL).booster_.to_bytes()


# Parameters.


@pytest.mark.parametrize(
    "parameters",
    [
        {"verbose": -1},
        {"verbosity": -1},
        {"verbosity": 0},
        {"boosting_type": "gbdt"},
        {"boosting": "gbdt"},
        {"booster": "gbtree"},
        {"tree_method": "hist"},
        {"device_type": "cpu"},
        {"deterministic": True},
        {"force_row_wise": True},
        {"force_col_wise": True},
        {"boost_from_average": True},
        {"linear_tree": False},
        {"max_depth": None},
        {"min_data_in_bin": 1},
        {"min_data_in_bin": 0},
    ],
)
def test_parameter_that_means_what_happens_anyway_changes_nothing(
    parameters: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert model_bytes(**parameters) == model_bytes()
    estimator = DMLGBMRegressor(**parameters)
    assert clone(estimator).get_params() == estimator.get_params()
    assert DMLGBMRegressor().set_params(**parameters).get_params() == estimator.get_params()
    estimator.set_params(**SMALL).fit(X, SIGNAL, eval_set=(OTHER, OTHER_SIGNAL))
    assert "valid_0" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"booster": "dart"}, "has no booster='dart': boosting_type says how trees are boosted; XGBoost's 'dart' is"),
        ({"tree_method": "exact"}, "has no tree_method='exact': splits are always found in histograms"),
        ({"verbosity": 1}, "has no verbosity=1: verbose=1 reports the metrics of every iteration"),
        ({"device": "cuda"}, "has no device='cuda': training uses the CPUs"),
        ({"force_row_wise": "yes"}, "has no force_row_wise='yes': training chooses by itself how rows lie"),
        ({"deterministic": "yes"}, "has no deterministic='yes': fits are always reproducible"),
        ({"boost_from_average": False}, "has no boost_from_average=False: init_score says where scores start"),
        ({"linear_tree": True}, "has no linear_tree=True: leaves hold one value each"),
    ],
)
def test_parameter_that_cannot_be_had_names_our_way(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DMLGBMRegressor(**parameters)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({"num_leaf": 5, "nrounds": 3}, {"num_leaves": 5, "n_estimators": 3}),
        ({"max_leaf": 5, "app": "mae"}, {"num_leaves": 5, "objective": "mae"}),
        ({"lambda": 3.0, "l1_regularization": 0.5}, {"reg_lambda": 3.0, "reg_alpha": 0.5}),
        ({"min_data": 40, "min_hessian": 2.0}, {"min_child_samples": 40, "min_child_weight": 2.0}),
        ({"min_data_per_leaf": 40, "min_sum_hessian_per_leaf": 2.0}, {"min_data_in_leaf": 40, "min_sum_hessian": 2.0}),
        ({"sub_row": 0.5, "subsample_freq": 1}, {"subsample": 0.5, "subsample_freq": 1}),
        ({"bagging": 0.5, "subsample_freq": 1}, {"subsample": 0.5, "subsample_freq": 1}),
        ({"sub_feature": 0.5, "sub_feature_bynode": 0.5}, {"colsample_bytree": 0.5, "colsample_bynode": 0.5}),
        ({"objective_type": "RMSE"}, {"objective": "regression"}),
    ],
)
def test_names_of_lightgbm_mean_the_same(given: dict[str, Any], ours: dict[str, Any]) -> None:
    trained = [DMLGBMRegressor(**each) for each in (given, ours)]
    assert trained[0].get_params() | {"objective": None} == trained[1].get_params() | {"objective": None}
    one, other = (each.set_params(n_estimators=4).fit(X, SIGNAL).booster_ for each in trained)
    assert one == other


def test_verbosity_and_verbose_that_disagree_are_an_error() -> None:
    with pytest.raises(ValueError, match="verbose=5 of DMLGBMRegressor and another parameter disagree"):
        DMLGBMRegressor(verbosity=-1, verbose=5)


def test_search_over_a_parameter_that_is_not_kept() -> None:
    search = GridSearchCV(DMLGBMRegressor(**SMALL), {"booster": ["gbtree"], "num_leaves": [3]}, cv=2)
    assert search.fit(X, SIGNAL).best_params_ == {"booster": "gbtree", "num_leaves": 3}


@pytest.mark.parametrize("limits", [{}, {"max_depth": 3}, {"min_child_samples": 7}])
def test_no_limit_of_leaves_is_as_many_as_the_other_limits_allow(limits: dict[str, Any]) -> None:
    assert model_bytes(num_leaves=None, **limits) == model_bytes(num_leaves=300, **limits)
    prepared = DMLGBMRegressor(**SMALL | limits | {"num_leaves": None})
    shared = prepared.fit_prepared(prepared.prepare(X, SIGNAL))
    assert shared.booster_.to_bytes() == model_bytes(num_leaves=None, **limits)


def test_every_bin_has_min_data_in_bin_rows() -> None:
    values = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [50, 3, 60, 100, 4])[:, None]
    target = (values[:, 0] == 2) + 5.0 * (values[:, 0] == 5) + values[:, 0] / 10
    options = {"n_estimators": 1, "min_child_samples": 1, "min_child_weight": 0.0}

    def thresholds(**parameters: Any) -> list[float]:
        (tree,) = DMLGBMRegressor(**options, **parameters).fit(values, target).booster_.trees
        return sorted(tree.threshold.tolist())

    assert thresholds() == [1.5, 2.5, 3.5, 4.5]
    # The values 2 and 3 share a bin, and so do 4 and 5.
    assert thresholds(min_data_in_bin=10) == [1.5, 3.5]


# Arguments of fit.


def test_arguments_of_fit_mean_what_the_constructor_does() -> None:
    by_constructor = DMLGBMRegressor(**SMALL, eval_metric="l1", categorical_feature=[3])
    by_constructor.fit(X, SIGNAL, eval_set=(OTHER, OTHER_SIGNAL))
    by_fit = DMLGBMRegressor(**SMALL)
    by_fit.fit(X, SIGNAL, eval_set=(OTHER, OTHER_SIGNAL), eval_metric="l1", categorical_feature=[3])
    assert by_fit.booster_ == by_constructor.booster_
    assert by_fit.evals_result_ == by_constructor.evals_result_
    assert by_fit.eval_metric is None


@pytest.mark.parametrize("mask", [[False, False, False, True], np.array([False, False, False, True])])
def test_categorical_columns_may_be_a_mask(mask: Any) -> None:
    assert model_bytes(categorical_feature=mask) == model_bytes(categorical_feature=[3])
    with pytest.raises(ValueError, match="categorical_feature is a mask of 2 columns, but X has 4"):
        model_bytes(categorical_feature=[True, False])


@pytest.mark.filterwarnings("error")
def test_feature_name_names_the_columns_of_an_array() -> None:
    named = DMLGBMRegressor(**SMALL).fit(
        X, SIGNAL, feature_name=list("abcd"), categorical_feature=["d"], eval_set=[(OTHER, OTHER_SIGNAL)]
    )
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert named.booster_ == DMLGBMRegressor(**SMALL).fit(frame, SIGNAL, categorical_feature=["d"]).booster_
    assert named.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature_name is for arrays, but X has column names"):
        DMLGBMRegressor().fit(frame, SIGNAL, feature_name=list("wxyz"))
    with pytest.raises(ValueError, match="feature_name lists 2 names, but X has 4 columns"):
        DMLGBMRegressor().fit(X, SIGNAL, feature_name=["a", "b"])


def test_group_may_be_whole_numbers_as_floats() -> None:
    sizes = np.full(15, 20)
    models = [DMLGBMRanker(**SMALL).fit(X, BINARY, group=group) for group in (sizes, sizes.astype(float))]
    assert models[0].booster_ == models[1].booster_
    with pytest.raises(ValueError, match="group must list the whole number of rows"):
        DMLGBMRanker().fit(X, BINARY, group=np.full(200, 1.5))


def test_one_callback_needs_no_list() -> None:
    seen: list[int] = []
    DMLGBMRegressor(**SMALL).fit(X, SIGNAL, callbacks=lambda state: seen.append(state.iteration))
    assert seen == [1, 2, 3, 4]


# Metrics.


def history_of(eval_metric: Any, kind: Any = DMLGBMRegressor, y: Any = SIGNAL, **fit: Any) -> dict[str, list[float]]:
    model = kind(**SMALL, eval_metric=eval_metric)
    return model.fit(X, y, eval_set=[(X, y)], **fit).evals_result_["valid_0"]


def mean_difference(y: Any, p: Any) -> float:
    return float(np.mean(np.abs(y - p)))


def weighted_difference(y: Any, p: Any, weight: Any) -> tuple[str, float, bool]:
    return "difference", float(np.average(np.abs(y - p), weights=weight)), False


def two_metrics(y: Any, p: Any) -> list[tuple[str, float, bool]]:
    return [("one", mean_difference(y, p), False), ("two", -mean_difference(y, p), True)]


def test_metric_function_may_return_a_number_or_a_list() -> None:
    expected = history_of("l1")["l1"]
    np.testing.assert_allclose(history_of(mean_difference)["mean_difference"], expected)
    both = history_of(two_metrics)
    np.testing.assert_allclose(both["one"], expected)
    np.testing.assert_allclose(both["two"], np.negative(expected))


def test_metric_function_with_three_arguments_gets_the_weights() -> None:
    weighted = history_of(weighted_difference, eval_sample_weight=[WEIGHT])["difference"]
    np.testing.assert_allclose(weighted, history_of("l1", eval_sample_weight=[WEIGHT])["l1"])
    np.testing.assert_allclose(history_of(weighted_difference)["difference"], history_of("l1")["l1"])


def test_metric_function_with_four_arguments_gets_the_sizes_of_queries() -> None:
    seen: list[Any] = []

    def metric(y: Any, p: Any, weight: Any, group: Any) -> float:
        seen.append((weight, group.tolist()))
        return 0.0

    sizes = [100, 200]
    DMLGBMRanker(**SMALL, eval_metric=metric).fit(X, BINARY, group=sizes, eval_set=[(X, BINARY)], eval_group=[sizes])
    assert seen == [(None, sizes)] * 5


def test_metrics_of_scikit_learn_get_weights_and_classes_where_they_need_them() -> None:
    listed = [metrics.roc_auc_score, metrics.accuracy_score, metrics.log_loss, "binary_error"]
    found = history_of(listed, DMLGBMClassifier, BINARY, eval_sample_weight=[WEIGHT])
    ours = history_of(["auc", "binary_error", "binary_logloss"], DMLGBMClassifier, BINARY, eval_sample_weight=[WEIGHT])
    np.testing.assert_allclose(found["roc_auc_score"], ours["auc"])
    np.testing.assert_allclose(found["accuracy_score"], 1 - np.array(ours["binary_error"]))
    np.testing.assert_allclose(found["log_loss"], ours["binary_logloss"])
    macro = functools.partial(metrics.f1_score, average="macro")
    several = history_of([macro, metrics.accuracy_score], DMLGBMClassifier, THREE)
    np.testing.assert_allclose(
        several["accuracy_score"], 1 - np.array(history_of("multi_error", DMLGBMClassifier, THREE)["multi_error"])
    )
    assert 0 < several["f1_score"][-1] <= 1


@pytest.mark.parametrize(
    ("metric", "higher"), [(metrics.r2_score, True), (metrics.mean_squared_error, False), (mean_difference, False)]
)
def test_direction_of_a_metric_that_returns_a_number_is_told_by_its_name(metric: Any, higher: bool) -> None:
    seen: list[bool] = []
    history_of(metric, callbacks=[lambda state: seen.extend(e.higher_is_better for e in state.evaluations)])
    assert seen == [higher] * 4


def test_two_functions_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two metrics that are called '<lambda>'"):
        history_of([lambda y, p: 0.0, lambda y, p: 1.0])


# LightGBM's callbacks.


def test_callbacks_of_lightgbm_do_here_what_they_do_there(capfd: pytest.CaptureFixture[str]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    record: dict[str, Any] = {"stale": {}}
    noise = RANDOM.normal(size=100)
    sets = {"eval_set": [(OTHER, noise)], "eval_names": ["watched"]}
    theirs = [lightgbm.early_stopping(3), lightgbm.log_evaluation(2), lightgbm.record_evaluation(record)]
    model = DMLGBMRegressor(n_estimators=50).fit(X, SIGNAL, **sets, callbacks=theirs)
    expected = DMLGBMRegressor(n_estimators=50, early_stopping=True, early_stopping_rounds=3).fit(X, SIGNAL, **sets)
    assert model.best_iteration_ == expected.best_iteration_ < 50
    assert record == model.evals_result_ == expected.evals_result_
    assert capfd.readouterr().err.count("watched l2") == model.n_iter_ // 2
    assert DMLGBMRegressor(**SMALL).fit(X, SIGNAL, callbacks=lightgbm.log_evaluation(0)).n_iter_ == 4


def test_callback_of_lightgbm_that_has_no_counterpart_says_so() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    other = type("_OtherCallback", (), {"__module__": "lightgbm.callback", "__call__": lambda self, state: None})
    with pytest.raises(TypeError, match="LightGBM's _OtherCallback, which has no counterpart here"):
        DMLGBMRegressor().fit(X, SIGNAL, callbacks=[other()])
    with pytest.raises(ValueError, match=r"lightgbm\.early_stopping needs an eval_set"):
        DMLGBMRegressor().fit(X, SIGNAL, callbacks=[lightgbm.early_stopping(3)])


@pytest.mark.parametrize(("name", "use"), [("evaluation_result_list", r"state\.evaluations"), ("model", "booster")])
def test_callback_that_looks_for_lightgbms_names_is_told_ours(name: str, use: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': use .*{use}"):
        DMLGBMRegressor().fit(X, SIGNAL, callbacks=[lambda state: getattr(state, name)])


@pytest.mark.parametrize("name", ["stop_training", "iteration"])
def test_callback_that_sets_what_nobody_reads_is_told_so(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"a callback sets state\.{name}, which has no effect: call state\.stop"):
        DMLGBMRegressor().fit(X, SIGNAL, callbacks=[lambda state: setattr(state, name, True)])
