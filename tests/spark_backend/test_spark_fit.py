"""A fit of a Spark frame is the local fit of the same rows, byte for byte, however the rows are divided."""

from __future__ import annotations

import pickle
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from spark_tables import N_ROWS, UNEVEN, mixed_frame, on_spark, signal

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

Case = tuple[Any, pd.DataFrame, dict[str, str], dict[str, Any]]
"""An estimator, a table, which of its columns have a purpose, and further arguments of `fit`."""


def classes_with_weights() -> Case:
    X = mixed_frame()
    z = signal(X)
    labels = np.array(["low", "middle", "high"], dtype=object)[np.digitize(z, np.quantile(z, [0.4, 0.8]))]
    table = X.assign(label=labels, weight=np.linspace(0.5, 2, N_ROWS))
    estimator = DMLGBMClassifier(
        n_estimators=4,
        num_leaves=7,
        subsample=0.7,
        subsample_freq=1,
        class_weight="balanced",
        monotone_constraints={"whole": 1},
    )
    return estimator, table, {"y": "label", "sample_weight": "weight"}, {}


def unbalanced_classes() -> Case:
    X = mixed_frame()
    table = X.assign(late=signal(X) > np.quantile(signal(X), 0.9))
    estimator = DMLGBMClassifier(objective="focal", is_unbalance=True, n_estimators=4, num_leaves=7)
    return estimator, table, {"y": "late"}, {}


def relative_errors() -> Case:
    X = mixed_frame()
    table = X.assign(amount=20.0 + signal(X), weight=np.resize([1.0, 3.0, 2.0], N_ROWS))
    estimator = DMLGBMRegressor(objective="mape", n_estimators=4, num_leaves=7)
    return estimator, table, {"y": "amount", "sample_weight": "weight"}, {}


def numbers_with_rows_set_aside() -> Case:
    X = mixed_frame()
    estimator = DMLGBMRegressor(
        n_estimators=12,
        num_leaves=7,
        early_stopping=True,
        early_stopping_rounds=3,
        tree_learner="feature",
        interaction_constraints="pairwise",
        refit_after_stopping=True,
    )
    return estimator, X.assign(target=signal(X), start=0.25), {"y": "target", "init_score": "start"}, {}


def queries_across_partitions() -> Case:
    X = mixed_frame()
    sizes = np.resize([3, 17, 1, 40, 260], N_ROWS)
    ids = np.repeat(np.arange(N_ROWS), sizes)[:N_ROWS]
    grades = np.clip(np.round(signal(X)), 0, 4).astype(int)
    estimator = DMLGBMRanker(objective="rank_xendcg", n_estimators=4, num_leaves=7, tree_learner="data")
    return estimator, X.assign(grade=grades, query=ids), {"y": "grade", "qid": "query"}, {}


def dropout_and_rows_of_large_gradients() -> Case:
    X = mixed_frame()
    estimator = DMLGBMRegressor(
        n_estimators=5,
        num_leaves=7,
        boosting_type="dart",
        skip_drop=0.0,
        drop_rate=0.5,
        data_sample_strategy="goss",
        learning_rate=0.5,
        tree_learner="feature",
    )
    return estimator, X.assign(target=signal(X)), {"y": "target"}, {}


def random_forest() -> Case:
    X = mixed_frame()
    estimator = DMLGBMRegressor(n_estimators=3, num_leaves=7, boosting_type="rf", subsample=0.5, subsample_freq=1)
    return estimator, X.assign(target=signal(X)), {"y": "target"}, {}


def queries_with_positions() -> Case:
    estimator, table, purposes, more = queries_across_partitions()
    table = table.assign(place=np.arange(N_ROWS) % 9)
    return estimator.set_params(objective="lambdarank"), table, {**purposes, "position": "place"}, more


def hazards() -> Case:
    X = mixed_frame()
    times = np.ceil(9.0 * np.exp(signal(X) / 3.0)) * np.where(signal(X) > 1.0, -1.0, 1.0)
    estimator = DMLGBMRegressor(objective="cox", n_estimators=3, num_leaves=7, tree_learner="data")
    return estimator, X.assign(time=times), {"y": "time"}, {}


def locally(case: Case) -> Any:
    estimator, table, purposes, more = case
    X = table.drop(columns=list(purposes.values()))
    return estimator.fit(X, **{name: table[column] for name, column in purposes.items()}, **more)


@pytest.mark.parametrize(
    "case",
    [
        classes_with_weights,
        queries_across_partitions,
        dropout_and_rows_of_large_gradients,
        random_forest,
        unbalanced_classes,
        pytest.param(relative_errors, marks=pytest.mark.slow),
        queries_with_positions,
        hazards,
        pytest.param(numbers_with_rows_set_aside, marks=pytest.mark.slow),
    ],
    ids=lambda case: case.__name__,
)
def test_fit_on_spark_is_the_local_fit(spark: Any, case: Callable[[], Case]) -> None:
    estimator, table, purposes, more = case()
    frame = on_spark(spark, table, UNEVEN)
    found = estimator.fit(frame, **purposes, **more)
    expected = locally(case())
    assert found.booster_.to_bytes() == expected.booster_.to_bytes()
    assert found.evals_result_ == expected.evals_result_
    assert found.best_iteration_ == expected.best_iteration_
    assert found.fit_report_.n_ranks == 2
    assert set(vars(found)) - {"plan_", "fit_report_"} == set(vars(expected))
    again = pickle.loads(pickle.dumps(found))
    assert again.booster_.to_bytes() == expected.booster_.to_bytes()
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "what the fit kept must be given back"


@pytest.mark.slow
def test_evaluation_frames_and_local_sets_are_watched_and_callbacks_run_here(spark: Any) -> None:
    table = mixed_frame().assign(target=signal)
    other = mixed_frame(300, seed=5).assign(target=lambda X: signal(X, 6))
    seen: list[int] = []

    def stop_at_five(state: Any) -> None:
        seen.append(state.iteration)
        if state.iteration == 5:
            state.stop("five are enough")

    sets = [(on_spark(spark, other, 2), "target"), (other.drop(columns="target"), other["target"])]
    found = DMLGBMRegressor(n_estimators=40, num_leaves=7).fit(
        on_spark(spark, table, 3), "target", eval_set=sets, callbacks=[stop_at_five]
    )
    local_sets = [(other.drop(columns="target"), other["target"])] * 2
    expected = DMLGBMRegressor(n_estimators=5, num_leaves=7).fit(
        table.drop(columns="target"), table["target"], eval_set=local_sets
    )
    assert seen == [1, 2, 3, 4, 5]
    assert found.booster_.to_bytes() == expected.booster_.to_bytes()
    assert found.evals_result_ == expected.evals_result_


@pytest.mark.slow
def test_a_scorer_decides_on_spark_as_it_does_locally(spark: Any) -> None:
    table = mixed_frame().assign(late=lambda X: signal(X) > 0.5)
    other = mixed_frame(300, seed=5).assign(late=lambda X: signal(X, 6) > 0.5)
    before = DMLGBMClassifier(n_estimators=15, num_leaves=7).fit(table.drop(columns="late"), table["late"])

    def fitted(own: Any, sets: list[Any]) -> DMLGBMClassifier:
        model = DMLGBMClassifier(
            n_estimators=20,
            num_leaves=7,
            early_stopping_rounds=3,
            scoring="roc_auc",
            first_metric_only=True,
            eval_metric=["mcc", "average_precision", "neg_brier_score"],
        )
        return model.fit(*own, eval_set=sets, init_model=before)

    frames = [(on_spark(spark, table, 2), "late"), (on_spark(spark, other, 2), "late")]
    found = fitted((on_spark(spark, table, 3), "late"), frames)
    own, watched = ((each.drop(columns="late"), each["late"]) for each in (table, other))
    expected = fitted(own, [own, watched])
    assert found.booster_.to_bytes() == expected.booster_.to_bytes()
    assert (found.best_iteration_, found.best_score_) == (expected.best_iteration_, expected.best_score_)
    assert found.evals_result_ == expected.evals_result_
    assert list(found.best_score_["valid_1"]) == ["roc_auc", "mcc", "average_precision", "neg_brier_score"]
    assert found.best_iteration_ < found.n_iter_ < 35
    assert found.best_iteration_ == fitted(own, [watched]).best_iteration_, "the training rows are not watched"


@pytest.mark.slow
def test_vector_columns_are_one_feature_for_each_element(spark: Any) -> None:
    from pyspark.ml.linalg import SparseVector, Vectors

    rng = np.random.default_rng(3)
    values = rng.normal(size=(400, 3))
    values[rng.random(values.shape) < 0.6] = 0
    extra, y = rng.normal(size=400), values[:, 0] - values[:, 2] + rng.normal(scale=0.1, size=400)
    vectors: list[Any] = [Vectors.dense(row) for row in values]
    vectors[::2] = [SparseVector(3, np.flatnonzero(row), row[row != 0]) for row in values[::2]]
    rows = [(vector, float(one), float(target)) for vector, one, target in zip(vectors, extra, y, strict=True)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), ["features", "extra", "y"])
    X = pd.DataFrame(values, columns=[f"features[{position}]" for position in range(3)]).assign(extra=extra)
    expected = DMLGBMRegressor(n_estimators=4, num_leaves=7).fit(X, y)
    found = DMLGBMRegressor(n_estimators=4, num_leaves=7).fit(frame, "y")
    assert found.booster_.to_bytes() == expected.booster_.to_bytes()
    predictions = [row.prediction for row in found.predict(frame).select("prediction").collect()]
    assert predictions == expected.predict(X).tolist()


def test_predictions_are_lazy_columns_equal_to_local_ones(spark: Any) -> None:
    estimator, table, purposes, _ = classes_with_weights()
    model = locally((estimator, table, purposes, {}))
    X = table.drop(columns=list(purposes.values()))
    frame = on_spark(spark, table, UNEVEN)
    predicted = model.predict_proba(model.predict(frame))
    assert predicted.columns == [*frame.columns, "prediction", "probability"]
    expected = model.predict(X), model.predict_proba(X)
    model.fit(X.iloc[:50], table["label"].iloc[:50])  # a later fit must not change what was asked for before
    rows = predicted.select("prediction", "probability").collect()
    assert [row.prediction for row in rows] == expected[0].tolist()
    assert np.array_equal([row.probability for row in rows], expected[1])


def test_predictions_fit_the_evaluators_of_spark_ml(spark: Any) -> None:
    from pyspark.ml.evaluation import (
        BinaryClassificationEvaluator,
        MulticlassClassificationEvaluator,
        RegressionEvaluator,
    )
    from pyspark.ml.linalg import VectorUDT
    from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, roc_auc_score

    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(90, 2)), columns=["a", "b"])
    two = (table["a"] + random.normal(size=90) > 0).astype(int)
    three = two + (table["b"] > 1)
    frame = on_spark(spark, table.assign(two=two, three=three, y=table["a"] ** 2), 2)
    binary = DMLGBMClassifier(n_estimators=3, num_leaves=4).fit(table, two)
    predicted = binary.predict(binary.predict_proba(binary.predict_proba(frame, raw_score=True)))
    assert dict(predicted.dtypes)["prediction"] == "double"
    assert all(isinstance(predicted.schema[name].dataType, VectorUDT) for name in ("probability", "rawPrediction"))
    area = roc_auc_score(two, binary.predict_proba(table)[:, 1])
    for raw in ("rawPrediction", "probability"):
        evaluator = BinaryClassificationEvaluator(labelCol="two", rawPredictionCol=raw)
        assert evaluator.evaluate(predicted) == pytest.approx(area)
    several = DMLGBMClassifier(n_estimators=3, num_leaves=4).fit(table, three)
    predicted = several.predict(several.predict_proba(frame))
    evaluator = MulticlassClassificationEvaluator(labelCol="three", metricName="accuracy")
    assert evaluator.evaluate(predicted) == pytest.approx(accuracy_score(three, several.predict(table)))
    evaluator = MulticlassClassificationEvaluator(labelCol="three", metricName="logLoss")
    assert evaluator.evaluate(predicted) == pytest.approx(log_loss(three, several.predict_proba(table)))
    model = DMLGBMRegressor(n_estimators=3, num_leaves=4).fit(table, table["a"] ** 2)
    evaluator = RegressionEvaluator(labelCol="y", metricName="mse")
    error = mean_squared_error(table["a"] ** 2, model.predict(table))
    assert evaluator.evaluate(model.predict(frame)) == pytest.approx(error)


def test_columns_are_checked_before_anything_runs(spark: Any) -> None:
    frame = spark.createDataFrame([(1.0, 2.0)], ["a", "b"])
    with pytest.raises(TypeError, match="y must be the name of a column of X, because X is a Spark DataFrame"):
        DMLGBMRegressor().fit(frame, np.zeros(1))
    with pytest.raises(ValueError, match="sample_weight='w' is not a column of X, which has a, b"):
        DMLGBMRegressor().fit(frame, "b", sample_weight="w")
    model = DMLGBMRegressor(n_estimators=1).fit(pd.DataFrame({"a": [1.0, 2], "c": [1.0, 2]}), [1, 2])
    with pytest.raises(ValueError, match="X has no column 'c', which the model was fitted with"):
        model.predict(frame)


@pytest.mark.slow
def test_errors_of_the_data_and_of_ranks_reach_the_driver_with_their_kind(spark: Any) -> None:
    frame = on_spark(spark, pd.DataFrame({"a": np.arange(60.0), "y": [*np.ones(59), np.nan]}), 2)
    with pytest.raises(ValueError, match=r"In partition 1 .*: y holds NaN in row 29"):
        DMLGBMRegressor().fit(frame, "y")
    with pytest.raises(ZeroDivisionError) as caught:
        DMLGBMRegressor(objective=failing_objective).fit(frame.fillna(1.0), "y")
    assert "raised on rank" in caught.value.__notes__[0]


def failing_objective(y: Any, prediction: Any) -> Any:
    raise ZeroDivisionError("a function of the user")


@pytest.mark.slow
def test_example_runs(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # it is that of all tests
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spark_fit.py"), run_name="__main__")
    assert "Same bytes as a local fit: True" in capsys.readouterr().out


@pytest.mark.slow
def test_fit_warns_of_what_a_local_fit_warns_of(spark: Any) -> None:
    table = pd.DataFrame({"n": np.arange(40.0), "day": np.resize(["2024-01-31", "2024-02-01"], 40)})
    frame = on_spark(spark, table.assign(y=np.arange(40.0)), 2)
    with pytest.warns(UserWarning, match="rows to learn from") as caught:
        DMLGBMRegressor(n_estimators=2, min_child_samples=25).fit(frame, "y")
    told = [str(each.message) for each in caught]
    for expected in ("The column 'day' of X holds dates as text, such as '2024-01-31'", "there are 40 rows to learn"):
        assert sum(expected in each for each in told) == 1
