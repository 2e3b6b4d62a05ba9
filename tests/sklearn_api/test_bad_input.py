"""Bad input gets one clear sentence that names the column, row, parameter or file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, ModelFileError, ParameterError, load_model

N_ROWS = 60
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(N_ROWS, 3))
LABELS = (X[:, 0] > 0).astype(int)
TARGET = X[:, 0] + 0.1 * X[:, 1]
GRADES = RANDOM.integers(0, 3, N_ROWS)
FRAME = pd.DataFrame(X, columns=["age", "height", "weight"])
ESTIMATORS = (DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker)

Estimator = type[DMLGBMClassifier] | type[DMLGBMRegressor] | type[DMLGBMRanker]


def raises(message: str, kind: type[Exception] = ValueError) -> Any:
    return pytest.raises(kind, match=message)


def changed(values: Any, row: int, value: Any) -> np.ndarray:
    copy = np.array(values, dtype=np.float64)
    copy[row] = value
    return copy


def fitted(**parameters: Any) -> DMLGBMRegressor:
    return DMLGBMRegressor(n_estimators=2, **parameters).fit(FRAME, TARGET)


# Targets.


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (changed(TARGET, 5, np.nan), "y holds NaN in row 5"),
        (changed(TARGET, 6, -np.inf), "y holds an infinite value in row 6"),
        (TARGET[:-1], "y has 59 values for 60 rows of X"),
        (np.stack([TARGET, TARGET], axis=1), r"y should be a 1d array .* got shape \(60, 2\)"),
        (["one"] * N_ROWS, "y holds 'one' in row 0, which is not a number"),
        ([0.5, None, *TARGET[2:]], "y holds (nan|None|NaN) in row 1"),
        (None, "requires y to be passed, but the target y is None"),
    ],
)
def test_regression_target(y: Any, message: str) -> None:
    with raises(message):
        DMLGBMRegressor().fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ones(N_ROWS), "y holds one class only, 1.0"),
        (["yes"] * N_ROWS, "y holds one class only, 'yes'"),
        (changed(LABELS, 3, np.nan), "y holds NaN in row 3"),
        (changed(LABELS, 4, np.inf), "y holds an infinite label in row 4"),
        (changed(LABELS, 5, 0.5), r"Unknown label type: y is continuous \(row 5 holds 0.5\)"),
        (LABELS[:-2], "y has 58 values for 60 rows"),
        ([None, *["a", "b"] * 29, "a"], "y is missing in row 0"),
        (np.array([1, "b"] * 30, dtype=object), "y mixes strings and other values .*row 0 holds 1, row 1 'b'"),
        (pd.Series(["a", None] * 30), "y is missing in row 1"),
    ],
)
def test_class_labels(y: Any, message: str) -> None:
    with raises(message):
        DMLGBMClassifier().fit(X, y)


def test_negative_poisson_target() -> None:
    with raises("row 4 is -1.0, but objective 'poisson' needs"):
        DMLGBMRegressor(objective="poisson").fit(X, changed(np.abs(TARGET), 4, -1.0))


def test_relevance_grades_that_are_not_whole_numbers() -> None:
    with raises("row 2 is 0.5, but objective 'lambdarank' needs"):
        DMLGBMRanker().fit(X, changed(GRADES, 2, 0.5), group=[30, 30])


# Weights, starting scores, groups.


@pytest.mark.parametrize("estimator", [DMLGBMClassifier, DMLGBMRegressor])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (changed(np.ones(N_ROWS), 8, np.nan), "sample_weight holds NaN in row 8"),
        (changed(np.ones(N_ROWS), 8, np.inf), "sample_weight holds an infinite value in row 8"),
        (changed(np.ones(N_ROWS), 9, -2.0), "sample_weight holds the negative weight -2 in row 9"),
        (np.zeros(N_ROWS), "every weight is zero"),
        (np.ones(10), "sample_weight has 10 values for 60 rows"),
        (np.ones((N_ROWS, 2)), r"sample_weight must be one-dimensional, got an array of shape \(60, 2\)"),
        (["heavy"] * N_ROWS, "sample_weight holds 'heavy' in row 0, which is not a number"),
    ],
)
def test_sample_weight(estimator: Any, weight: Any, message: str) -> None:
    with raises(message):
        estimator().fit(X, LABELS, sample_weight=weight)


def test_weights_that_leave_one_class() -> None:
    with raises("Only one class, 1, has a row whose weight is above zero"):
        DMLGBMClassifier().fit(X, LABELS, sample_weight=LABELS)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({2: 1.0}, "class_weight lists 2, which is not a class of y: its classes are 0, 1"),
        ({0: -1.0}, "class_weight of 0 must be a finite number of at least zero, got -1.0"),
        ({0: "heavy"}, "class_weight of 0 must be a finite number"),
        ({0: 0, 1: 0}, "class_weight is zero for every class"),
        ("balance", "class_weight must be None, .balanced. or a dictionary"),
    ],
)
def test_class_weight(class_weight: Any, message: str) -> None:
    with raises(message):
        DMLGBMClassifier(class_weight=class_weight).fit(X, LABELS)


@pytest.mark.parametrize(
    ("init_score", "message"),
    [
        (np.zeros(5), r"init_score must have the shape \(60,\), got an array of shape \(5,\)"),
        (changed(np.zeros(N_ROWS), 3, np.nan), "init_score holds NaN in row 3"),
    ],
)
def test_init_score(init_score: Any, message: str) -> None:
    with raises(message):
        DMLGBMRegressor().fit(X, TARGET, init_score=init_score)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "pass either group .* or qid .* got neither"),
        ({"group": [60], "qid": np.zeros(N_ROWS)}, "got both"),
        ({"group": [20, 30]}, "The sizes in group add up to 50, but X has 60 rows"),
        ({"group": [60, 0]}, "group holds the size 0 for query 1"),
        ({"group": [30.5, 29.5]}, "group must list the whole number of rows of each query"),
        ({"qid": np.zeros(10)}, "qid has 10 values for 60 rows"),
        ({"qid": [1, 2] * 30}, "qid returns to 1 in row 2 after other queries: sort the rows by qid"),
    ],
)
def test_groups(groups: dict[str, Any], message: str) -> None:
    with raises(message):
        DMLGBMRanker().fit(X, GRADES, **groups)


# Tables.


@pytest.mark.parametrize("estimator", [DMLGBMClassifier, DMLGBMRegressor])
@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.empty((0, 3)), r"Found array with 0 sample\(s\)"),
        (np.empty((N_ROWS, 0)), r"Found array with 0 feature\(s\)"),
        (X[:, 0], "Expected 2D array, got 1D array instead"),
        (X[:, :, None], "Found array with dim 3"),
        (X.astype(complex), "Complex data not supported"),
        (FRAME.rename(columns={"age": "height"}), "X has 2 columns named 'height'"),
    ],
)
def test_table_shape(estimator: Any, table: Any, message: str) -> None:
    with raises(message):
        estimator().fit(table, LABELS)


def test_column_that_mixes_text_and_numbers_names_column_and_rows() -> None:
    frame = FRAME.astype(object)
    frame.loc[7, "height"] = "tall"
    with raises("column 'height' of X mixes numbers .* and strings .row 7: 'tall'.", TypeError):
        DMLGBMRegressor().fit(frame, TARGET)


def test_missing_column_in_prediction() -> None:
    with raises("X lacks the column 'height' that DMLGBMRegressor was fitted with"):
        fitted().predict(FRAME.drop(columns="height"))


def test_extra_column_in_prediction() -> None:
    with raises("X has the column 'shoe size' that DMLGBMRegressor was not fitted with"):
        fitted().predict(FRAME.assign(**{"shoe size": 1.0}))


def test_wrong_number_of_features_in_prediction() -> None:
    with raises("X has 2 features, but DMLGBMRegressor is expecting 3 features as input"):
        DMLGBMRegressor(n_estimators=2).fit(X, TARGET).predict(X[:, :2])


def test_text_where_numbers_were_fitted() -> None:
    frame = FRAME.assign(age="old")
    with raises("column 'age' of X holds text or categories, but DMLGBMRegressor was fitted with numbers there"):
        fitted().predict(frame)


def test_unknown_category_when_it_is_an_error() -> None:
    frame = FRAME.assign(age=["a", "b"] * 30)
    model = DMLGBMRegressor(n_estimators=2, handle_unknown="error").fit(frame, TARGET)
    with raises("column 'age' has the category 'c', which training did not see"):
        model.predict(frame.assign(age="c"))


def test_categorical_feature_that_is_no_column() -> None:
    with raises(r"categorical_feature lists 'hight', which is not a column of X \(did you mean 'height'\?\)"):
        DMLGBMRegressor(categorical_feature=["hight"]).fit(FRAME, TARGET)


# Evaluation sets.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_set": [(X[:, :2], LABELS)]}, r"X of eval_set\[0\] has 2 features"),
        ({"eval_set": [(X, LABELS[:9])]}, r"y of eval_set\[0\] has 9 values for 60 rows"),
        ({"eval_set": [X]}, r"eval_set\[0\] must be a pair"),
        ({"eval_set": [(X, LABELS + 5)]}, r"y of eval_set\[0\] holds the class 5, which is none of those"),
        ({"eval_set": (X, LABELS), "eval_names": ["a", "b"]}, "eval_names must hold 1 different names"),
        ({"eval_set": (X, LABELS), "eval_sample_weight": [np.ones(60)] * 2}, "eval_sample_weight has 2 entries for 1"),
        ({"eval_sample_weight": [np.ones(60)]}, "eval_sample_weight has 1 entries for 0 evaluation sets"),
        (
            {"eval_set": (X, LABELS), "eval_sample_weight": [-np.ones(60)]},
            r"eval_sample_weight of eval_set\[0\] holds the negative weight -1 in row 0",
        ),
    ],
)
def test_evaluation_sets(arguments: dict[str, Any], message: str) -> None:
    with raises(message):
        DMLGBMClassifier(n_estimators=2).fit(X, LABELS, **arguments)


def test_evaluation_sets_must_come_in_a_list() -> None:
    with raises("eval_set must be a list of .X, y. pairs", TypeError):
        DMLGBMClassifier(n_estimators=2).fit(X, LABELS, eval_set=X)


@pytest.mark.parametrize(
    ("eval_metric", "message", "kind"),
    [
        ("binary_loglos", "unknown metric 'binary_loglos'. Did you mean 'binary_logloss'", ValueError),
        (5, "eval_metric must be a name, a function or a list of them, got 5", TypeError),
        (
            lambda y, p: "good",
            "eval_metric function <lambda> must return a number, .name, value, higher_is_better. or .*, got 'good'",
            TypeError,
        ),
    ],
)
def test_eval_metric(eval_metric: Any, message: str, kind: type[Exception]) -> None:
    with raises(message, kind):
        DMLGBMClassifier(eval_metric=eval_metric).fit(X, LABELS, eval_set=(X, LABELS))


def test_early_stopping_with_one_row_or_without_metric() -> None:
    with raises("early_stopping=True cannot set a row aside, because X has 1 row"):
        DMLGBMRegressor(early_stopping=True).fit(X[:1], TARGET[:1])
    with raises("custom objective has none: set eval_metric"):
        DMLGBMRegressor(objective=lambda y, p: (p - y, np.ones_like(y)), early_stopping=True).fit(X, TARGET)


def test_callback_that_is_no_function() -> None:
    with raises("callbacks must be a function or a list of functions, but it holds 'log'", TypeError):
        DMLGBMRegressor().fit(X, TARGET, callbacks=["log"])


# Parameters.


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unknown_parameter_gets_a_suggestion(estimator: Estimator) -> None:
    message = rf"{estimator.__name__} has no parameter 'num_leafs' \(did you mean 'num_leaves'\?\)"
    with raises(message, TypeError):
        estimator(num_leafs=5)
    with raises(message, ValueError):
        estimator().set_params(num_leafs=5)


def test_alias_of_another_estimator_is_unknown() -> None:
    with raises("DMLGBMClassifier has no parameter 'quantile'", TypeError):
        DMLGBMClassifier(quantile=0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DMLGBMRegressor(max_iter=50, n_estimators=100),
        lambda: DMLGBMRegressor(n_estimators=100, max_iter=50),
        lambda: DMLGBMRegressor().set_params(max_iter=50, n_estimators=100),
    ],
)
def test_alias_and_parameter_that_disagree(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="two names of the parameter 'n_estimators'") as caught:
        make()
    assert {"max_iter=50", "n_estimators=100"} <= set(re.findall(r"\w+=\d+", str(caught.value)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_estimators": 0}, "n_estimators=0 is out of range"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1 is out of range"),
        ({"learning_rate": float("nan")}, "learning_rate=nan is out of range"),
        ({"num_leaves": 1}, "num_leaves=1 is out of range"),
        ({"max_depth": 0}, "max_depth=0 is out of range"),
        ({"max_bin": 1}, "max_bin=1 is out of range"),
        ({"subsample": 0.0}, "subsample=0.0 is out of range"),
        ({"colsample_bytree": 1.5}, "colsample_bytree=1.5 is out of range"),
        ({"reg_lambda": -1.0}, "reg_lambda=-1.0 is out of range"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 is out of range"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds=0 is out of range"),
        ({"early_stopping_min_delta": -0.1}, "early_stopping_min_delta=-0.1 is out of range"),
        ({"early_stopping_sets": []}, "early_stopping_sets is empty"),
        ({"scoring": "roc_auk"}, r"scoring='roc_auk' is no scorer of scikit-learn \(did you mean 'roc_auc'\?\)"),
        ({"alpha": 1.0}, "alpha=1.0 is out of range"),
        ({"objective": "huber", "alpha": 0}, "alpha=0.0 is out of range: Huber's threshold must be above 0"),
        ({"fair_c": 0.0}, "fair_c=0.0 is out of range: it must be a positive number"),
        ({"tweedie_variance_power": 2}, "tweedie_variance_power=2.0 is out of range: it must be from 1 to less than 2"),
        ({"n_jobs": 0}, "n_jobs=0 is out of range"),
        ({"random_state": -1}, "random_state=-1 is out of range"),
        ({"verbose": 0.5}, "verbose=0.5 must be 0"),
        ({"grow_policy": "lossguide"}, "grow_policy='lossguide' is not one of 'leafwise', 'depthwise'"),
        ({"precision": "double"}, "precision='double' is not one of"),
        ({"handle_unknown": "ignore"}, "handle_unknown='ignore' is not one of 'missing', 'error'"),
        ({"importance_type": "cover"}, "importance_type='cover' is not one of 'split', 'gain'"),
        ({"objective": "poison"}, r"objective='poison' is not known \(did you mean 'poisson'\?\)"),
        ({"objective": "binary"}, "objective='binary' does not fit DMLGBMRegressor"),
    ],
)
def test_value_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with raises(message, ParameterError):
        DMLGBMRegressor(**parameters).fit(X, TARGET)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_estimators": "100"}, "n_estimators must be a whole number, got '100' of type str"),
        ({"n_estimators": True}, "n_estimators must be a whole number, got True of type bool"),
        ({"n_estimators": 10.5}, "n_estimators must be a whole number, got 10.5 of type float"),
        ({"max_bin": None}, "max_bin must be a whole number, got None"),
        ({"learning_rate": "0.1"}, "learning_rate must be a number, got '0.1' of type str"),
        ({"learning_rate": False}, "learning_rate must be a number, got False of type bool"),
        ({"early_stopping": "yes"}, "early_stopping must be True, False or \"auto\", got 'yes'"),
        ({"early_stopping_min_delta": "0.1"}, "early_stopping_min_delta must be a number, got '0.1'"),
        ({"early_stopping_sets": 3}, "early_stopping_sets must be None, a name or a list of names, got 3"),
        ({"first_metric_only": None}, "first_metric_only must be True or False, got None"),
        ({"scoring": 3}, "scoring must be None, 'loss', the name of a scorer or a function, got 3"),
        ({"n_jobs": "all"}, "n_jobs must be None or a whole number, got 'all'"),
        ({"random_state": "x"}, "random_state must be None, a whole number or a generator"),
        ({"objective": 3}, "objective must be a name or a function, got 3"),
    ],
)
def test_value_of_the_wrong_type(parameters: dict[str, Any], message: str) -> None:
    with raises(message, TypeError):
        DMLGBMRegressor(**parameters).fit(X, TARGET)


def test_eval_at_positions() -> None:
    with raises("eval_at must be a list of whole numbers of positions, got 5", TypeError):
        DMLGBMRanker(eval_at=5).fit(X, GRADES, group=[60])
    with raises("eval_at must hold whole numbers of positions from 1 on"):
        DMLGBMRanker(eval_at=(0,)).fit(X, GRADES, group=[60], eval_set=(X, GRADES), eval_group=[[60]])


def test_binary_objective_for_three_classes() -> None:
    with raises("objective='binary' is for two classes, but y holds 3"):
        DMLGBMClassifier(objective="binary").fit(X, GRADES)


def test_subsample_that_would_do_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="subsample=0.5 has no effect while subsample_freq=0"):
        DMLGBMRegressor(n_estimators=1, subsample=0.5).fit(X, TARGET)


@pytest.mark.parametrize("num_iteration", ["all", 1.5, True])
def test_num_iteration(num_iteration: Any) -> None:
    with raises("num_iteration must be None or a whole number", TypeError):
        fitted().predict(FRAME, num_iteration=num_iteration)


# Continued training.


def test_model_to_go_on_from() -> None:
    with raises("init_model must be a fitted estimator, a Booster or the path of a model file, got 5", TypeError):
        DMLGBMRegressor().fit(X, TARGET, init_model=5)
    model = DMLGBMClassifier(n_estimators=2).fit(X, LABELS)
    with raises(r"y holds the classes \[0, 1, 2\], but the model to go on from was fitted with \[0, 1\]"):
        DMLGBMClassifier().fit(X, GRADES, init_model=model)
    with raises("was trained with objective 'binary' .* but this fit has objective 'regression'"):
        DMLGBMRegressor().fit(X, TARGET, init_model=model)
    with raises("X has 2 features, but DMLGBMClassifier is expecting 3"):
        DMLGBMClassifier().fit(X[:, :2], LABELS, init_model=model)


def test_warm_start_without_more_trees() -> None:
    model = DMLGBMRegressor(n_estimators=3, warm_start=True).fit(X, TARGET)
    with raises("n_estimators=3 is not above the 3 iterations that warm_start=True goes on from", ParameterError):
        model.fit(X, TARGET)


# Files.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is truncated"),
        (b"a,b\n1,2\n", "is not a DMLGBM model: it starts with b'a,b"),
        (b"DMLGBM\0\x01" + bytes(100), "is (damaged|too long|truncated)"),
    ],
)
def test_file_that_is_not_a_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.dml"
    path.write_bytes(content)
    with raises(rf"model file '.*model\.dml' {message}", ModelFileError):
        load_model(path)
    with raises(rf"model file '.*model\.dml' {message}", ModelFileError):
        DMLGBMRegressor().fit(X, TARGET, init_model=path)


def test_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with raises("nothing", FileNotFoundError):
        load_model(tmp_path / "nothing")
    with raises("is not a regular file", ModelFileError):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("parameters", "message", "kind"),
    [
        ({"objective": "focal"}, "objective='focal' is for two classes, but y holds 3", ValueError),
        ({"scale_pos_weight": 2}, "scale_pos_weight=2.0 does not fit objective 'multiclass'", ParameterError),
        ({"is_unbalance": True}, "is_unbalance=True does not fit objective 'multiclass'", ParameterError),
        ({"is_unbalance": 1}, "is_unbalance must be True or False, got 1", TypeError),
        ({"scale_pos_weight": None}, "scale_pos_weight must be a number, got None", TypeError),
        ({"objective": "ova", "focal_alpha": 0.0}, "focal_alpha=0.0 is out of range", ParameterError),
        ({"focal_gamma": -1}, "focal_gamma=-1.0 is out of range", ParameterError),
    ],
)
def test_classes_that_cannot_be_balanced(parameters: dict[str, Any], message: str, kind: type[Exception]) -> None:
    with raises(message, kind):
        DMLGBMClassifier(**parameters).fit(X, GRADES)


def test_relative_errors_of_small_targets_are_announced() -> None:
    with pytest.warns(UserWarning, match="1 of 60 targets are below 1 in magnitude, and objective 'mape'"):
        DMLGBMRegressor(objective="mape", n_estimators=1).fit(X, changed(np.full(60, 5.0), 4, 0.5))
