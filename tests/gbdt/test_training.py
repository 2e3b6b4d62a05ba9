"""Boosting does what it says: losses fall, scores are the model's own, weights and first scores mean what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.metrics import default_metric, metrics_for
from dmlgbm.gbdt.objectives import ObjectiveSettings, transform
from dmlgbm.gbdt.objectives.averages import percentile
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.training import TrainingResult, train

FloatArray = npt.NDArray[np.float64]
N_ROWS = 600
OBJECTIVES = {
    "binary": ObjectiveSettings("binary"),
    "multiclass": ObjectiveSettings("multiclass", n_classes=3),
    "regression": ObjectiveSettings("regression"),
    "regression_l1": ObjectiveSettings("regression_l1"),
    "quantile": ObjectiveSettings("quantile", alpha=0.8),
    "poisson": ObjectiveSettings("poisson"),
    "huber": ObjectiveSettings("huber", alpha=0.8),
    "fair": ObjectiveSettings("fair"),
    "logcosh": ObjectiveSettings("logcosh"),
    "expectile": ObjectiveSettings("expectile", alpha=0.8),
    "gamma": ObjectiveSettings("gamma"),
    "tweedie": ObjectiveSettings("tweedie"),
    "cross_entropy": ObjectiveSettings("cross_entropy"),
    "focal": ObjectiveSettings("focal"),
    "multiclassova": ObjectiveSettings("multiclassova", n_classes=3),
}
SAMPLED = {"subsample": 0.5, "subsample_freq": 2, "colsample_bytree": 0.7, "colsample_bynode": 0.7}


def mixed_table(random: np.random.Generator, n_rows: int = N_ROWS) -> tuple[Table, FloatArray]:
    """Numbers, missing numbers, exclusive columns and categories, and a signal in all of them."""
    numbers = random.normal(size=(n_rows, 2))
    gaps = np.where(random.random(n_rows) < 0.2, np.nan, random.normal(size=n_rows))
    exclusive = np.eye(3)[random.integers(0, 3, n_rows)]
    codes = random.integers(-1, 8, n_rows).astype(np.int8)
    columns = (
        *(NumericColumn(numbers[:, k]) for k in range(2)),
        NumericColumn(gaps),
        *(NumericColumn(exclusive[:, k]) for k in range(3)),
        CategoricalColumn(codes, tuple("abcdefgh")),
    )
    signal = numbers[:, 0] + np.nan_to_num(gaps, nan=1.5) + exclusive @ [0.0, 1.0, 2.0] + (codes % 3 == 1)
    return Table(columns, n_rows), signal - signal.mean()


def target_for(objective: str, signal: FloatArray, random: np.random.Generator) -> FloatArray:
    noisy = signal + 0.3 * random.normal(size=len(signal))
    if objective in ("binary", "focal"):
        return (noisy > 0).astype(np.float64)
    if objective in ("multiclass", "multiclassova"):
        return np.digitize(noisy, [-1.0, 1.0]).astype(np.float64)
    if objective == "gamma":
        return np.exp(0.5 * noisy)
    if objective == "cross_entropy":
        return 1.0 / (1.0 + np.exp(-noisy))
    if objective in ("poisson", "tweedie"):
        return random.poisson(np.exp(0.5 * signal)).astype(np.float64)
    return noisy


def fit(table: Table, objective: str | ObjectiveSettings, target: FloatArray, **options: Any) -> TrainingResult:
    of_rows = ("weight", "init_score", "group_starts")
    rows = Rows(table, target, **{name: options.pop(name) for name in of_rows if name in options})
    names = ("evaluation_sets", "metrics", "callbacks", "initial_model")
    passed = {name: options.pop(name) for name in names if name in options}
    parameters = TrainParameters(**({"n_estimators": 12, "num_leaves": 8, "min_data_per_group": 5} | options))
    settings = OBJECTIVES[objective] if isinstance(objective, str) else objective
    return train(parameters, BinningParameters(), rows, settings, **passed)


def own_losses(table: Table, objective: str, target: FloatArray, **options: Any) -> list[float]:
    """The objective's own metric on the training rows after every iteration."""
    metrics = metrics_for([default_metric(objective)], objective_alpha=0.8, eval_at=(5,))
    rows = Rows(table, target, options.get("weight"), options.get("init_score"), options.get("group_starts"))
    own = EvaluationSet.whole("train", rows)
    result = fit(table, objective, target, evaluation_sets=[own], metrics=metrics, **options)
    (values,) = result.evaluations["train"].values()
    return values


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_objective_lowers_its_loss_in_every_iteration(objective: str, weighted: bool) -> None:
    random = np.random.default_rng(0)
    table, signal = mixed_table(random)
    target = target_for(objective, signal, random)
    losses = own_losses(table, objective, target, weight=random.uniform(0.5, 3.0, N_ROWS) if weighted else None)
    assert len(losses) == 12
    assert np.all(np.diff(losses) < 0.0)
    # Likelihoods have a floor of their own.
    assert losses[-1] < (0.97 if objective in ("gamma", "tweedie", "cross_entropy") else 0.8) * losses[0]


def test_lambdarank_brings_relevant_rows_to_the_top() -> None:
    random = np.random.default_rng(1)
    table, signal = mixed_table(random)
    target = np.digitize(signal, [-1.0, 0.0, 1.0]).astype(np.float64)
    groups = np.arange(0, N_ROWS + 1, 20)
    metrics = metrics_for(["ndcg"], objective_alpha=0.5, eval_at=(5,))
    own = EvaluationSet.whole("train", Rows(table, target, group_starts=groups))
    settings = ObjectiveSettings("lambdarank")
    result = fit(table, settings, target, group_starts=groups, evaluation_sets=[own], metrics=metrics)
    values = result.evaluations["train"]["ndcg@5"]
    assert values[-1] > 0.95
    assert values[-1] > values[0]


def recording(gradient: Callable[[FloatArray, FloatArray], FloatArray]) -> tuple[Callable[..., Any], list[FloatArray]]:
    """An objective that keeps the scores it is asked about."""
    seen: list[FloatArray] = []

    def objective(target: FloatArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        seen.append(score.copy())
        return gradient(target, score), np.ones_like(score)

    return objective, seen


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("sampled", [{}, SAMPLED])
def test_training_scores_are_the_models_own_to_the_last_bit(
    monkeypatch: pytest.MonkeyPatch, n_threads: int, sampled: dict[str, float]
) -> None:
    """Rows outside the bag included: they are routed over bins, and the model compares values."""
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    random = np.random.default_rng(2)
    table, signal = mixed_table(random)
    objective, seen = recording(lambda target, score: score - target)
    booster = fit(table, ObjectiveSettings(objective), signal, n_threads=n_threads, **sampled).booster
    staged = [np.zeros(N_ROWS), *(scores[0] for scores in booster.staged_raw_scores(table))]
    assert len(seen) == 12
    for during, after in zip(seen, staged[:-1], strict=True):
        assert during.tobytes() == after.tobytes()
    assert staged[-1].tobytes() == booster.raw_scores(table).tobytes()


def test_scores_of_several_outputs_are_the_models_own_to_the_last_bit() -> None:
    random = np.random.default_rng(3)
    table, signal = mixed_table(random)
    target = np.digitize(signal, [-1.0, 1.0]).astype(np.float64)
    one_hot = np.eye(3)[target.astype(int)]
    objective, seen = recording(lambda _, score: score - one_hot)
    booster = fit(table, ObjectiveSettings(objective, n_classes=3), target, n_threads=2, **SAMPLED).booster
    for during, after in zip(seen[1:], booster.staged_raw_scores(table), strict=False):
        assert np.ascontiguousarray(during.T).tobytes() == after.tobytes()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_evaluations_are_metrics_of_the_models_predictions(objective: str) -> None:
    random = np.random.default_rng(4)
    table, signal = mixed_table(random)
    target = target_for(objective, signal, random)
    losses = own_losses(table, objective, target, **SAMPLED)
    booster = fit(table, objective, target, **SAMPLED).booster
    (metric,) = metrics_for([default_metric(objective)], objective_alpha=0.8, eval_at=(5,))
    for n_iterations in (1, 12):
        prediction = transform(booster.objective, booster.raw_scores(table, n_iterations=n_iterations))
        shaped = prediction if booster.n_outputs > 1 else prediction[0]
        assert metric.function(target, shaped, None, None) == losses[n_iterations - 1]


def test_a_leaf_is_a_newton_step_from_exact_sums() -> None:
    random = np.random.default_rng(5)
    table, signal = mixed_table(random)
    for precision in ("fast", "exact"):
        result = fit(
            table,
            "regression",
            signal,
            n_estimators=1,
            reg_alpha=3.0,
            reg_lambda=7.0,
            precision=precision,
            learning_rate=0.5,
        )
        tree, leaves = result.booster.trees[0], result.booster.leaf_indices(table)[:, 0]
        residuals = (signal - result.booster.base_scores[0]).astype(np.float32).astype(np.float64)
        for leaf in range(tree.n_leaves):
            own = residuals[leaves == leaf]
            expected = 0.5 * np.sign(own.sum()) * max(abs(own.sum()) - 3.0, 0.0) / (len(own) + 7.0)
            assert tree.leaf_value[leaf] == pytest.approx(expected, rel=1e-6, abs=1e-12)
            assert tree.leaf_weight[leaf] == len(own)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_leaf_of_an_absolute_error_is_the_median_of_its_residuals(weighted: bool) -> None:
    random = np.random.default_rng(6)
    table, signal = mixed_table(random)
    weight = random.integers(1, 4, N_ROWS).astype(np.float64) if weighted else None
    result = fit(table, "regression_l1", signal, n_estimators=1, learning_rate=1.0, weight=weight)
    residuals = signal - result.booster.base_scores[0]
    leaves = result.booster.leaf_indices(table)[:, 0]
    for leaf, value in enumerate(result.booster.trees[0].leaf_value):
        own = leaves == leaf
        repeated = np.repeat(residuals[own], 1 if weight is None else weight[own].astype(int))
        below, above = np.mean(repeated < value - 1e-12), np.mean(repeated > value + 1e-12)
        assert max(below, above) <= 0.5


@pytest.mark.parametrize("objective", ["regression", "binary", "poisson"])
def test_a_weight_of_two_is_a_row_given_twice(objective: str) -> None:
    """Columns of few values, so that both have the same bins; the rest is the same sums."""
    random = np.random.default_rng(7)
    values = random.integers(0, 12, (N_ROWS, 3)).astype(np.float64)
    target = target_for(objective, values[:, 0] / 6 - 1 + (values[:, 1] > 5), random)
    doubled = random.random(N_ROWS) < 0.5
    repeated = np.repeat(np.arange(N_ROWS), np.where(doubled, 2, 1))
    tables = [Table(tuple(NumericColumn(v[:, k]) for k in range(3)), len(v)) for v in (values, values[repeated])]
    options = {"min_child_samples": 1, "min_child_weight": 5.0, "precision": "exact"}
    weighted = fit(tables[0], objective, target, weight=np.where(doubled, 2.0, 1.0), **options).booster
    twice = fit(tables[1], objective, target[repeated], **options).booster
    np.testing.assert_allclose(weighted.raw_scores(tables[0]), twice.raw_scores(tables[0]), rtol=1e-5, atol=1e-6)


def test_rows_of_no_weight_do_not_matter_to_leaf_values() -> None:
    random = np.random.default_rng(8)
    table, signal = mixed_table(random)
    weight = (random.random(N_ROWS) < 0.5).astype(np.float64)
    other = np.where(weight > 0, signal, 1e6)
    models = [fit(table, "regression", target, weight=weight, precision="exact").booster for target in (signal, other)]
    np.testing.assert_array_equal(models[0].raw_scores(table), models[1].raw_scores(table))


@pytest.mark.parametrize("objective", ["regression", "binary"])
def test_first_scores_replace_the_base_score_and_are_not_part_of_the_model(objective: str) -> None:
    random = np.random.default_rng(9)
    table, signal = mixed_table(random)
    target = target_for(objective, signal, random)
    plain = fit(table, objective, target).booster
    base = float(plain.base_scores[0])
    given = fit(table, objective, target, init_score=np.full((1, N_ROWS), base)).booster
    assert given.base_scores.tolist() == [0.0]
    for own, other in zip(plain.trees, given.trees, strict=True):
        np.testing.assert_array_equal(own.leaf_value, other.leaf_value)
    np.testing.assert_allclose(given.raw_scores(table) + base, plain.raw_scores(table), rtol=0, atol=1e-12)


def test_first_scores_that_say_it_all_leave_nothing_to_learn() -> None:
    random = np.random.default_rng(10)
    table, signal = mixed_table(random)
    booster = fit(table, "regression", signal, init_score=signal[None, :].copy()).booster
    np.testing.assert_array_equal(booster.raw_scores(table), 0.0)


def test_first_scores_of_evaluation_sets_count() -> None:
    random = np.random.default_rng(11)
    table, signal = mixed_table(random)
    first = random.normal(size=(1, N_ROWS))
    losses = own_losses(table, "regression", signal, init_score=first)
    booster = fit(table, "regression", signal, init_score=first).booster
    expected = np.mean((signal - first[0] - booster.raw_scores(table)[0]) ** 2)
    assert losses[-1] == pytest.approx(expected, rel=1e-12)


def test_continuing_with_first_scores_goes_on_from_the_same_bits() -> None:
    """Adding up in another order would change last digits, and with them, now and then, a model."""
    random = np.random.default_rng(21)
    table, signal = mixed_table(random)
    first = random.normal(size=(1, N_ROWS))
    objective, seen = recording(lambda target, score: score - target)
    settings = ObjectiveSettings(objective)
    start = fit(table, settings, signal, init_score=first, n_estimators=6).booster
    fit(table, settings, signal, init_score=first, n_estimators=6, initial_model=start)
    in_two_runs = seen.copy()
    seen.clear()
    fit(table, settings, signal, init_score=first)
    for other, own in zip(in_two_runs, seen, strict=True):
        assert other.tobytes() == own.tobytes()


def test_training_leaves_its_inputs_alone() -> None:
    random = np.random.default_rng(12)
    table, signal = mixed_table(random)
    inputs = [signal, np.ones(N_ROWS), np.zeros((1, N_ROWS))]
    before = [array.copy() for array in inputs]
    for array in inputs:
        array.flags.writeable = False
    fit(table, "regression", inputs[0], weight=inputs[1], init_score=inputs[2])
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass", "poisson"])
@pytest.mark.parametrize("weighted", [False, True])
def test_precisions_are_about_equally_accurate(objective: str, weighted: bool) -> None:
    random = np.random.default_rng(13)
    table, signal = mixed_table(random)
    target = target_for(objective, signal, random)
    weight = random.uniform(0.5, 2.0, N_ROWS) if weighted else None
    last = {
        precision: own_losses(table, objective, target, weight=weight, precision=precision)[-1]
        for precision in ("fast", "auto", "exact")
    }
    assert last["fast"] == pytest.approx(last["exact"], rel=0.05)
    assert last["auto"] == pytest.approx(last["exact"], rel=0.05)


@pytest.mark.parametrize("ratio", [1e3, 1e6])
@pytest.mark.parametrize("objective", ["regression", "regression_l1", "quantile"])
@pytest.mark.parametrize("heavy", ["weights", "targets"])
def test_heavy_tails_do_not_round_everybody_else_to_zero(objective: str, heavy: str, ratio: float) -> None:
    """Three rows count (or lie) far more (or further) than all others; what the others say is still learned."""
    if (heavy, objective) == ("targets", "regression"):
        pytest.skip("squared errors of a million are all that counts, at any precision")
    random = np.random.default_rng(14)
    table, signal = mixed_table(random)
    weight, target = None, signal.copy()
    if heavy == "weights":
        weight = np.where(np.arange(N_ROWS) < 3, ratio, 1.0)
        target[:3] = 0.0
    else:
        target[:3] = ratio
    errors = {}
    for precision in ("auto", "exact"):
        booster = fit(
            table, objective, target, weight=weight, precision=precision, n_estimators=40, min_child_samples=5
        ).booster
        residuals = signal - booster.raw_scores(table)[0]
        errors[precision] = float(np.mean(np.maximum(0.8 * residuals, -0.2 * residuals)[3:]))
    assert errors["auto"] == pytest.approx(errors["exact"], rel=0.1)


def test_bags_are_kept_for_subsample_freq_iterations_and_hold_their_share() -> None:
    random = np.random.default_rng(15)
    table, signal = mixed_table(random)
    booster = fit(table, "regression", signal, subsample=0.4, subsample_freq=3).booster
    sizes = [int(tree.count[0]) for tree in booster.trees]
    assert all(len(set(sizes[k : k + 3])) == 1 for k in range(0, 12, 3))
    assert len(set(sizes)) > 1
    assert 0.3 * N_ROWS < np.mean(sizes) < 0.5 * N_ROWS


def test_a_different_seed_gives_a_different_bagged_model() -> None:
    random = np.random.default_rng(16)
    table, signal = mixed_table(random)
    models = {fit(table, "regression", signal, seed=seed, **SAMPLED).booster.to_bytes() for seed in (0, 1, 2)}
    assert len(models) == 3


def early_stopped(metric: str, patience: int | None) -> tuple[TrainingResult, Table, Rows]:
    random = np.random.default_rng(17)
    table, signal = mixed_table(random)
    target = (signal + 2.0 * random.normal(size=N_ROWS) > 0).astype(np.float64)
    other, other_signal = mixed_table(np.random.default_rng(18))
    fresh = Rows(other, (other_signal > 0).astype(np.float64))
    watched = [EvaluationSet.whole("fresh", fresh), EvaluationSet.whole("train", Rows(table, target))]
    metrics = metrics_for([metric, "binary_error"], objective_alpha=0.5, eval_at=(1,))
    result = fit(
        table,
        "binary",
        target,
        evaluation_sets=watched,
        metrics=metrics,
        n_estimators=300,
        learning_rate=0.3,
        early_stopping_rounds=patience,
        early_stopping_sets=("fresh",),
        first_metric_only=True,
    )
    return result, table, fresh


@pytest.mark.parametrize("metric", ["binary_logloss", "auc"])
def test_early_stopping_ends_so_many_iterations_after_the_best_one(metric: str) -> None:
    result, _, fresh = early_stopped(metric, 5)
    values = np.array(result.evaluations["fresh"][metric])
    best = int(values.argmax() if metric == "auc" else values.argmin()) + 1
    assert result.best_iteration == best
    assert result.booster.n_iterations == len(values) == best + 5 < 300
    assert result.best_score is not None
    assert result.best_score["fresh"][metric] == values[best - 1]
    assert set(result.best_score) == {"fresh", "train"}
    assert result.stop_reason is not None
    assert "fresh" in result.stop_reason
    (function,) = (m.function for m in metrics_for([metric], objective_alpha=0.5, eval_at=(1,)))
    at_best = transform("binary", result.booster.first(best).raw_scores(fresh.table))[0]
    assert function(fresh.target, at_best, None, None) == values[best - 1]


def test_early_stopping_sees_the_same_model_as_a_run_without_it() -> None:
    stopped, _, _ = early_stopped("auc", 5)
    whole, _, _ = early_stopped("auc", None)
    assert whole.best_iteration is None
    assert whole.booster.first(stopped.booster.n_iterations).to_bytes() == stopped.booster.to_bytes()
    assert whole.evaluations["train"]["auc"][: stopped.booster.n_iterations] == stopped.evaluations["train"]["auc"]


def test_custom_objectives_train_like_the_built_in_one() -> None:
    random = np.random.default_rng(19)
    table, signal = mixed_table(random)
    target = signal - signal.mean()
    custom, _ = recording(lambda target, score: score - target)
    own = fit(table, ObjectiveSettings(custom), target, precision="exact").booster
    built_in = fit(table, "regression", target, precision="exact").booster
    assert isinstance(own, Booster)
    np.testing.assert_allclose(own.raw_scores(table), built_in.raw_scores(table), rtol=1e-4, atol=1e-6)


def test_a_model_with_another_number_of_outputs_cannot_be_continued() -> None:
    random = np.random.default_rng(20)
    table, signal = mixed_table(random)
    start = fit(table, "regression", signal, n_estimators=2).booster
    with pytest.raises(ValueError, match=r"output|score"):
        fit(table, "multiclass", target_for("multiclass", signal, random), initial_model=start)


@pytest.mark.parametrize("weighted", [False, True])
def test_leaves_of_absolute_error_are_medians_by_the_rule_of_the_first_score(weighted: bool) -> None:
    """One rule for percentiles: a leaf moves by the same median as the first score is; no weight, no move."""
    target = np.array([0.0, 1.0, 1.0, 5.0] * 10 + [10.0, 12.0, 12.0, 13.0] * 10 + [40.0] * 40)
    group = np.repeat([0.0, 1.0, 2.0], 40)
    weight = np.where(group == 2.0, 0.0, np.tile([1.0, 3.0], 60)) if weighted else None
    table = Table((NumericColumn(group),), 120)
    parameters = TrainParameters(n_estimators=1, learning_rate=1.0, num_leaves=3, min_child_weight=0.0)
    settings = ObjectiveSettings("regression_l1")
    booster = train(parameters, BinningParameters(), Rows(table, target, weight), settings).booster
    scores = booster.raw_scores(table)[0]
    for value in (0.0, 1.0):
        rows = group == value
        expected = percentile(target[rows], None if weight is None else weight[rows], 0.5)
        np.testing.assert_allclose(scores[rows], expected)
