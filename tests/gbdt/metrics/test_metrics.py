"""Metrics agree with naive oracles, scikit-learn and LightGBM, and do not depend on order or chunking."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.metrics import Metric, default_metric, metrics_for
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, MeanMetric
from dmlgbm.gbdt.objectives.factory import OBJECTIVE_NAMES
from tests.reference import metrics as naive

FloatArray = npt.NDArray[np.float64]
ALPHA = 0.7
N_CLASSES = 4
EXACT = 1e-12
POINTWISE = ["binary_logloss", "binary_error", "rmse", "l2", "l1", "quantile", "poisson"]
MULTICLASS = ["multi_logloss", "multi_error"]
RANKING = ["ndcg", "map", "mrr", "err"]


def metric(name: str, n_positions: int = 3) -> Metric:
    (found,) = metrics_for([name], objective_alpha=ALPHA, eval_at=[n_positions])
    return found


def evaluate(
    name: str,
    target: FloatArray,
    prediction: FloatArray,
    weight: FloatArray | None = None,
    group_starts: npt.NDArray[np.int64] | None = None,
    n_positions: int = 3,
) -> float:
    return metric(name, n_positions).function(target, prediction, weight, group_starts)


def sample(name: str, n_rows: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Targets, predictions with many ties and weights with some zeros, as the metric needs them."""
    random = np.random.default_rng(seed)
    weight = random.choice([0.0, 0.1, 1.0, 1e6], n_rows) + random.random(n_rows) * (random.random() < 0.5)
    weight[random.integers(n_rows)] = 1.0
    if name in MULTICLASS:
        prediction = random.dirichlet(np.ones(N_CLASSES), n_rows).T.copy()
        return random.integers(0, N_CLASSES, n_rows).astype(float), prediction, weight
    prediction = np.round(random.random(n_rows), int(random.integers(1, 16)))
    if name in ("binary_logloss", "binary_error", "auc"):
        return random.integers(0, 2, n_rows).astype(float), prediction, weight
    if name == "poisson":
        return random.poisson(2.0, n_rows).astype(float), prediction + 0.01, weight
    return random.normal(size=n_rows) * 10.0 ** random.integers(-5, 5), prediction, weight


def ranking_sample(seed: int) -> tuple[FloatArray, FloatArray, FloatArray, npt.NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 30, random.integers(1, 20))
    n_rows = int(sizes.sum())
    labels = random.integers(0, 5, n_rows) * (random.random(n_rows) < 0.3)
    prediction = np.round(random.random(n_rows), int(random.integers(1, 5)))
    return labels.astype(float), prediction, random.random(n_rows) + 0.1, np.append(0, sizes.cumsum())


SCIKIT_LEARN: dict[str, Callable[[FloatArray, FloatArray, FloatArray | None], float]] = {
    "binary_logloss": lambda y, p, w: sklearn.metrics.log_loss(y, p, sample_weight=w, labels=[0, 1]),
    "multi_logloss": lambda y, p, w: sklearn.metrics.log_loss(y, p.T, sample_weight=w, labels=range(N_CLASSES)),
    "binary_error": lambda y, p, w: sklearn.metrics.zero_one_loss(y, p > 0.5, sample_weight=w),
    "multi_error": lambda y, p, w: sklearn.metrics.zero_one_loss(y, p.argmax(axis=0), sample_weight=w),
    "auc": lambda y, p, w: sklearn.metrics.roc_auc_score(y, p, sample_weight=w),
    "rmse": lambda y, p, w: sklearn.metrics.root_mean_squared_error(y, p, sample_weight=w),
    "l2": lambda y, p, w: sklearn.metrics.mean_squared_error(y, p, sample_weight=w),
    "l1": lambda y, p, w: sklearn.metrics.mean_absolute_error(y, p, sample_weight=w),
    "quantile": lambda y, p, w: sklearn.metrics.mean_pinball_loss(y, p, sample_weight=w, alpha=ALPHA),
    "poisson": lambda y, p, w: sklearn.metrics.mean_poisson_deviance(y, p, sample_weight=w),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_rows", [2, 37, 5001, 40_000])
@pytest.mark.parametrize("name", SCIKIT_LEARN)
def test_equals_scikit_learn(name: str, n_rows: int, weighted: bool) -> None:
    target, prediction, weight = sample(name, n_rows, seed=n_rows)
    target[:2] = [0.0, 1.0]
    weight[:2] = 1.0
    expected = SCIKIT_LEARN[name](target, prediction, weight if weighted else None)
    found = evaluate(name, target, prediction, weight if weighted else None)
    assert found == pytest.approx(expected, rel=EXACT, abs=EXACT)


ROW_LOSSES: dict[str, Callable[[float, FloatArray], float]] = {
    "binary_logloss": lambda y, p: naive.log_loss(int(y), [1.0 - p, p]),
    "multi_logloss": lambda y, p: naive.log_loss(int(y), p),
    "binary_error": lambda y, p: naive.error(int(y), [1.0 - p, p]),
    "multi_error": lambda y, p: naive.error(int(y), p),
    "l2": lambda y, p: (y - p) ** 2,
    "l1": lambda y, p: abs(y - p),
    "quantile": lambda y, p: naive.quantile_loss(y, p, ALPHA),
    "poisson": naive.poisson_deviance,
}


@pytest.mark.parametrize("name", ROW_LOSSES)
@given(n_rows=st.integers(1, 60), seed=st.integers(0, 2**32), weighted=st.booleans())
def test_row_means_equal_the_oracle(name: str, n_rows: int, seed: int, weighted: bool) -> None:
    target, prediction, weight = sample(name, n_rows, seed)
    losses = [ROW_LOSSES[name](y, p) for y, p in zip(target, prediction.T, strict=True)]
    expected = naive.mean(losses, weight if weighted else None)
    found = evaluate(name, target, prediction, weight if weighted else None)
    assert found == pytest.approx(expected, rel=EXACT, abs=EXACT)


@given(n_rows=st.integers(1, 40), seed=st.integers(0, 2**32), weighted=st.booleans())
def test_auc_equals_the_share_of_ordered_pairs(n_rows: int, seed: int, weighted: bool) -> None:
    target, prediction, weight = sample("auc", n_rows, seed)
    expected = naive.area_under_curve(target, prediction, weight if weighted else None)
    found = evaluate("auc", target, prediction, weight if weighted else None)
    assert found == pytest.approx(expected, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize(
    ("name", "of_query"),
    [
        ("ndcg", naive.ndcg),
        ("map", naive.average_precision),
        ("mrr", naive.reciprocal_rank),
        ("err", naive.expected_reciprocal_rank),
    ],
)
@given(seed=st.integers(0, 2**32), n_positions=st.integers(1, 40), weighted=st.booleans())
def test_ranking_equals_the_oracle(
    name: str, of_query: Callable[..., float], seed: int, n_positions: int, weighted: bool
) -> None:
    labels, prediction, weight, starts = ranking_sample(seed)
    queries = [slice(start, stop) for start, stop in pairwise(starts)]
    if name == "err":
        of_query = functools.partial(of_query, largest=int(labels.max()))
    values = [of_query(labels[query].astype(int).tolist(), prediction[query], n_positions) for query in queries]
    query_weight = [naive.mean(weight[query], None) for query in queries] if weighted else None
    found = evaluate(name, labels, prediction, weight if weighted else None, starts, n_positions)
    assert found == pytest.approx(naive.mean(values, query_weight), rel=EXACT)


@pytest.mark.parametrize("name", [*POINTWISE, *MULTICLASS, "auc"])
@given(n_rows=st.integers(1, 300), seed=st.integers(0, 2**32), weighted=st.booleans())
def test_order_of_rows_does_not_change_a_bit(name: str, n_rows: int, seed: int, weighted: bool) -> None:
    target, prediction, weight = sample(name, n_rows, seed)
    order = np.random.default_rng(seed + 1).permutation(n_rows)
    original = evaluate(name, target, prediction, weight if weighted else None)
    permuted = evaluate(name, target[order], prediction[..., order], weight[order] if weighted else None)
    assert permuted.hex() == original.hex()


def shuffled_queries(
    prediction: FloatArray, starts: npt.NDArray[np.int64], seed: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """A random order of queries and of the rows within, tied rows keeping theirs; and the new starts."""
    random = np.random.default_rng(seed)
    queries = []
    for query in random.permutation(len(starts) - 1):
        order = random.permutation(np.arange(starts[query], starts[query + 1]))
        for value in np.unique(prediction[order]):
            tied = prediction[order] == value
            order[tied] = np.sort(order[tied])
        queries.append(order)
    return np.concatenate(queries), np.append(0, np.cumsum([len(query) for query in queries]))


@pytest.mark.parametrize("name", RANKING)
@given(seed=st.integers(0, 2**32), weighted=st.booleans())
def test_order_of_queries_and_their_rows_does_not_change_a_bit(name: str, seed: int, weighted: bool) -> None:
    labels, prediction, weight, starts = ranking_sample(seed)
    order, new_starts = shuffled_queries(prediction, starts, seed + 1)
    original = evaluate(name, labels, prediction, weight if weighted else None, starts)
    permuted = evaluate(name, labels[order], prediction[order], weight[order] if weighted else None, new_starts)
    assert permuted.hex() == original.hex()


@pytest.mark.parametrize("name", [*POINTWISE, *MULTICLASS])
@given(
    n_rows=st.integers(1, 200),
    cuts=st.lists(st.integers(0, 200), max_size=5),
    seed=st.integers(0, 2**32),
    weighted=st.booleans(),
)
def test_parts_merge_to_the_bits_of_the_whole(
    name: str, n_rows: int, cuts: list[int], seed: int, weighted: bool
) -> None:
    target, prediction, weight = sample(name, n_rows, seed)
    mean_metric = metric(name).function
    assert isinstance(mean_metric, MeanMetric)
    merged = ExactMean()
    edges = sorted({0, n_rows, *(min(cut, n_rows) for cut in cuts)})
    for start, stop in pairwise(edges):
        part = slice(start, stop)
        part_weight = weight[part] if weighted else None
        merged.sums[...] += mean_metric.partial_mean(target[part], prediction[..., part], part_weight, None).sums
    whole = mean_metric(target, prediction, weight if weighted else None, None)
    assert mean_metric.finish(merged).hex() == whole.hex()


@given(
    st.lists(st.floats(0.0, 1e300) | st.sampled_from([0.0, 5e-324, 2.0**-1022, 1.0, 2.0**52 + 1, 1.7e308]), min_size=1)
)
def test_exact_mean_rounds_once(values: list[float]) -> None:
    mean = ExactMean()
    mean.add(np.array(values), None)
    assert mean.value() == naive.mean(values, None)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_makes_the_metric_nan(value: float) -> None:
    assert math.isnan(evaluate("l2", np.zeros(3), np.array([1.0, value, 2.0])))
    assert math.isnan(evaluate("l2", np.zeros(2), np.array([math.nan, -math.nan])))


@pytest.mark.parametrize("name", ["binary_logloss", "poisson", "auc"])
def test_a_prediction_of_nan_makes_the_metric_nan(name: str) -> None:
    assert math.isnan(evaluate(name, np.array([1.0, 0.0, 1.0]), np.array([0.5, math.nan, 0.2])))


def test_certain_and_wrong_costs_a_finite_log_loss() -> None:
    assert evaluate("binary_logloss", np.array([0.0]), np.array([1.0])) == pytest.approx(52 * math.log(2.0))
    assert evaluate("binary_logloss", np.array([1.0]), np.array([1.0])) == 0.0
    assert math.isfinite(evaluate("poisson", np.array([3.0]), np.array([0.0])))


def test_no_weight_gives_nan() -> None:
    assert math.isnan(evaluate("l2", np.ones(3), np.zeros(3), np.zeros(3)))
    assert math.isnan(evaluate("l2", np.empty(0), np.empty(0)))


@pytest.mark.parametrize("target", [[0.0, 0.0], [1.0, 1.0], []])
def test_auc_of_one_class_is_one(target: list[float]) -> None:
    assert evaluate("auc", np.array(target), np.linspace(0.0, 1.0, len(target))) == 1.0


def test_auc_of_weights_far_apart() -> None:
    random = np.random.default_rng(3)
    target = np.sort(random.integers(0, 2, 999)).astype(float)
    weight = 10.0 ** random.uniform(-300, 300, 999)
    assert evaluate("auc", target, np.arange(999.0), weight) == pytest.approx(1.0, rel=EXACT)
    assert evaluate("auc", target, -np.arange(999.0), weight) == 0.0
    assert evaluate("auc", target, np.zeros(999), np.full(999, 5e-324)) == 0.5


def test_queries_without_relevant_rows_count_as_one() -> None:
    starts = np.array([0, 2, 4])
    labels = np.array([0.0, 0.0, 0.0, 1.0])
    prediction = np.array([0.1, 0.2, 0.9, 0.8])
    assert evaluate("ndcg", labels, prediction, None, starts, 1) == 0.5
    assert evaluate("map", labels, prediction, None, starts, 2) == 0.75


def test_expected_reciprocal_rank_goes_by_the_largest_label_of_all_queries() -> None:
    labels, prediction = np.array([1.0, 2.0, 1.0]), np.array([0.9, 0.8, 0.7])
    # The first query stops at its first row with probability 1/4, else at its second with 3/4.
    assert evaluate("err", labels, prediction, None, np.array([0, 2, 3])) == (0.25 + 0.75 * 0.75 / 2 + 0.25) / 2


def test_equal_predictions_rank_in_row_order() -> None:
    starts = np.array([0, 3])
    assert evaluate("map", np.array([1.0, 0.0, 0.0]), np.zeros(3), None, starts, 1) == 1.0
    assert evaluate("map", np.array([0.0, 0.0, 1.0]), np.zeros(3), None, starts, 1) == 0.0


def test_names_aliases_and_positions() -> None:
    metrics = metrics_for(["mae", "l1", "ndcg", "auc", "map"], objective_alpha=ALPHA, eval_at=(1, 5))
    assert [found.name for found in metrics] == ["l1", "ndcg@1", "ndcg@5", "auc", "map@1", "map@5"]
    assert [found.higher_is_better for found in metrics] == [False, True, True, True, True, True]


@pytest.mark.parametrize("objective", OBJECTIVE_NAMES)
def test_every_objective_has_a_default_metric(objective: str) -> None:
    assert metrics_for([default_metric(objective)], objective_alpha=ALPHA, eval_at=[1])


def test_metrics_can_be_pickled() -> None:
    names = [*POINTWISE, *MULTICLASS, "auc", *RANKING]
    metrics = metrics_for(names, objective_alpha=ALPHA, eval_at=[2])
    assert [found.name for found in pickle.loads(pickle.dumps(metrics))] == [found.name for found in metrics]


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"eval_metric names an unknown metric 'binary_loglos'.*'binary_logloss'\?"):
        metrics_for(["binary_loglos"], objective_alpha=ALPHA, eval_at=[1])


def test_positions_below_one_are_an_error() -> None:
    with pytest.raises(ValueError, match="eval_at must hold whole numbers of positions from 1 on, got 0"):
        metrics_for(["ndcg"], objective_alpha=ALPHA, eval_at=[0])


@pytest.mark.parametrize(
    ("name", "n_axes"), [("binary_logloss", 2), ("l2", 2), ("auc", 2), ("multi_logloss", 1), ("multi_error", 1)]
)
def test_a_metric_of_another_kind_of_objective_is_an_error(name: str, n_axes: int) -> None:
    with pytest.raises(ValueError, match=f"metric '{name}' needs one"):
        evaluate(name, np.zeros(3), np.zeros((3,) * n_axes))


def test_ranking_without_queries_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"metric 'ndcg@3' needs to know which rows form a query: pass `group` or"):
        evaluate("ndcg", np.zeros(3), np.zeros(3))


@pytest.mark.parity
@pytest.mark.parametrize("weighted", [False, True])
def test_ranking_equals_lightgbm(weighted: bool) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    random = np.random.default_rng(0)
    sizes = random.integers(1, 40, 100)
    n_rows = int(sizes.sum())
    features = random.normal(size=(n_rows, 3))
    labels = (random.integers(0, 5, n_rows) * (random.random(n_rows) < 0.2)).astype(float)
    weight = None
    if weighted:
        weight = np.repeat(random.random(len(sizes)) + 0.5, sizes)
        # LightGBM counts a query without a relevant row as 1 whatever its weight.
        labels[sizes.cumsum() - 1] = 1.0
    score = random.normal(size=n_rows)
    data = lightgbm.Dataset(features, labels, weight=weight, group=sizes, init_score=score)
    results: dict[str, dict[str, list[float]]] = {}
    settings = {"objective": "lambdarank", "metric": ["ndcg", "map"], "eval_at": [1, 3, 10], "verbosity": -1}
    record = lightgbm.record_evaluation(results)
    booster = lightgbm.train(settings, data, 1, valid_sets=[data], valid_names=["rows"], callbacks=[record])
    prediction = score + booster.predict(features, raw_score=True)
    starts = np.append(0, sizes.cumsum())
    for found in metrics_for(["ndcg", "map"], objective_alpha=ALPHA, eval_at=[1, 3, 10]):
        value = found.function(labels, prediction, weight, starts)
        assert value == pytest.approx(results["rows"][found.name][-1], rel=1e-7 if weighted else EXACT)


def test_gains_of_labels_are_for_ndcg_alone() -> None:
    random = np.random.default_rng(0)
    label, prediction, starts = random.integers(0, 4, 60).astype(float), random.normal(size=60), np.arange(0, 61, 10)
    names = ["ndcg@5", "err@5", "map@5", "mrr@5"]
    usual, other = (
        [
            m.function(label, prediction, None, starts)
            for m in metrics_for(names, objective_alpha=0.5, eval_at=(), label_gain=gains)
        ]
        for gains in (None, (0.0, 1.0, 1.0, 9.0))
    )
    assert [own == theirs for own, theirs in zip(usual, other, strict=True)] == [False, True, True, True]
