"""Metrics of classes, and some of regression: scikit-learn's figures, in any order and from any parts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm.gbdt.metrics import Metric, metrics_for
from dmlgbm.gbdt.metrics.calibration import N_BINS
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric
from tests.reference import metrics as naive

FloatArray = npt.NDArray[np.float64]
Rows = tuple[FloatArray, FloatArray, FloatArray | None]
N_CLASSES = 4
EXACT = 1e-12
BINARY = [
    *(
        "accuracy",
        "f1",
        "f1_macro",
        "f1_micro",
        "f1_weighted",
        "balanced_accuracy",
        "mcc",
        "brier",
        "calibration_error",
    ),
    *("average_precision", "aucpr", "top_1_error"),
]
MULTICLASS = [
    *("accuracy", "f1_macro", "f1_micro", "f1_weighted", "balanced_accuracy", "mcc", "brier", "calibration_error"),
    *("auc_ovr", "auc_ovo", "average_precision", "top_1_error", "top_3_error"),
]
REGRESSION = ["r2", "rmsle", "pinball@0.1"]
CASES = [("binary", name) for name in BINARY] + [("multi", name) for name in MULTICLASS]
ALL_CASES = CASES + [("number", name) for name in REGRESSION]


def metric(name: str) -> Metric:
    (found,) = metrics_for([name], objective_alpha=0.7, eval_at=[3])
    return found


def value(name: str, rows: Rows) -> float:
    return metric(name).function(*rows, None)


def sample(kind: str, n_rows: int, seed: int, weighted: bool) -> Rows:
    """Rows with many ties; some classes may be missing."""
    random = np.random.default_rng(seed)
    weight = random.choice([0.1, 1.0, 3.0, 1e6], n_rows) * (0.5 + random.random(n_rows)) if weighted else None
    if kind == "number":
        offset = random.choice([0.0, 1e6])
        target = np.round(random.gamma(1.0, 3.0, n_rows), int(random.integers(1, 10))) + offset
        return target, target + np.round(random.normal(size=n_rows), 1) * (random.random() < 0.9), weight
    if kind == "binary":
        target = (random.random(n_rows) < random.choice([0.0, 0.1, 0.5, 1.0])).astype(np.float64)
        noisy = np.clip(0.3 * target + 0.7 * random.random(n_rows), 0.0, 1.0)
        return target, np.round(noisy, int(random.integers(1, 16))), weight
    present = random.permutation(N_CLASSES)[: random.integers(1, N_CLASSES + 1)]
    target = random.choice(present, n_rows).astype(np.float64)
    # Sixteenths add up to one exactly, and tie within a row and between rows.
    counts = random.multinomial(16, np.full(N_CLASSES, 1 / N_CLASSES), n_rows)
    counts[:, random.integers(N_CLASSES)] += 16
    return target, np.ascontiguousarray(counts.T / 32), weight


def classes(p: FloatArray) -> npt.NDArray[np.int64]:
    return np.asarray(p.argmax(axis=0) if p.ndim == 2 else p > 0.5).astype(np.int64)


def brier(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
    labels = range(N_CLASSES) if p.ndim == 2 else None
    return float(sklearn.metrics.brier_score_loss(y, p.T, sample_weight=w, labels=labels, **_positive(p)))


def _positive(p: FloatArray) -> dict[str, int]:
    return {} if p.ndim == 2 else {"pos_label": 1}


def average_precision(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
    if p.ndim == 1:
        return float(sklearn.metrics.average_precision_score(y, p, sample_weight=w))
    values = [sklearn.metrics.average_precision_score(y == k, p[int(k)], sample_weight=w) for k in np.unique(y)]
    return float(np.mean(values))


def auc(y: npt.NDArray[np.bool_], p: FloatArray, w: FloatArray | None) -> float:
    return float(sklearn.metrics.roc_auc_score(y, p, sample_weight=w))


def auc_ovr(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
    present = np.unique(y)
    return float(np.mean([auc(y == k, p[int(k)], w) for k in present])) if len(present) > 1 else 1.0


def auc_ovo(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
    values = []
    for one, other in combinations(np.unique(y), 2):
        rows = (y == one) | (y == other)
        own = None if w is None else w[rows]
        values += [auc(y[rows] == k, p[int(k)][rows], own) for k in (one, other)]
    return float(np.mean(values)) if values else 1.0


def top_k_error(k: int) -> Callable[[FloatArray, FloatArray, FloatArray | None], float]:
    def error(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
        labels = [0, 1] if p.ndim == 1 else range(N_CLASSES)
        return 1.0 - sklearn.metrics.top_k_accuracy_score(y, p.T, k=k, sample_weight=w, labels=labels)

    return error


def f1(average: str) -> Callable[[FloatArray, FloatArray, FloatArray | None], float]:
    return lambda y, p, w: sklearn.metrics.f1_score(y, classes(p), average=average, sample_weight=w, zero_division=0.0)


def calibration_error(y: FloatArray, p: FloatArray, w: FloatArray | None) -> float:
    probability, came_true = (p, y) if p.ndim == 1 else (p.max(axis=0), classes(p) == y)
    return naive.calibration_error(probability.tolist(), came_true.astype(float).tolist(), w, N_BINS)


EXPECTED: dict[str, Callable[[FloatArray, FloatArray, FloatArray | None], float]] = {
    "accuracy": lambda y, p, w: sklearn.metrics.accuracy_score(y, classes(p), sample_weight=w),
    "f1": f1("binary"),
    "f1_macro": f1("macro"),
    "f1_micro": f1("micro"),
    "f1_weighted": f1("weighted"),
    "balanced_accuracy": lambda y, p, w: sklearn.metrics.balanced_accuracy_score(y, classes(p), sample_weight=w),
    "mcc": lambda y, p, w: sklearn.metrics.matthews_corrcoef(y, classes(p), sample_weight=w),
    "brier": brier,
    "calibration_error": calibration_error,
    "average_precision": average_precision,
    "auc_ovr": auc_ovr,
    "auc_ovo": auc_ovo,
    "top_1_error": top_k_error(1),
    "top_3_error": top_k_error(3),
    "r2": lambda y, p, w: sklearn.metrics.r2_score(y, p, sample_weight=w),
    "rmsle": lambda y, p, w: sklearn.metrics.root_mean_squared_log_error(y, p, sample_weight=w),
    "pinball@0.1": lambda y, p, w: sklearn.metrics.mean_pinball_loss(y, p, sample_weight=w, alpha=0.1),
}


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "name"), [case for case in ALL_CASES if case[1] in EXPECTED])
@settings(max_examples=40)
@given(n_rows=st.integers(2, 80), seed=st.integers(0, 2**32), weighted=st.booleans())
def test_equals_scikit_learn_whatever_is_tied_or_missing(
    kind: str, name: str, n_rows: int, seed: int, weighted: bool
) -> None:
    y, p, w = sample(kind, n_rows, seed, weighted)
    if name == "rmsle":
        p = np.maximum(p, -0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = EXPECTED[name](y, p, w)
    # scikit-learn's own sums lose digits where targets are far from zero, or squared counts nearly equal.
    tolerance = 1e-7 if name in ("r2", "rmsle", "mcc") else EXACT
    assert value(name, (y, p, w)) == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("average", ["ovr", "ovo"])
def test_multiclass_area_is_that_of_roc_auc_score(average: str) -> None:
    random = np.random.default_rng(0)
    y = np.append(np.arange(N_CLASSES), random.integers(0, N_CLASSES, 500)).astype(np.float64)
    p = random.dirichlet(np.ones(N_CLASSES), len(y))
    expected = sklearn.metrics.roc_auc_score(y, p, multi_class=average, average="macro")
    assert value(f"auc_{average}", (y, np.ascontiguousarray(p.T), None)) == pytest.approx(expected, rel=EXACT)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "name"), ALL_CASES)
@settings(max_examples=40)
@given(n_rows=st.integers(1, 120), seed=st.integers(0, 2**32), weighted=st.booleans())
def test_order_does_not_change_a_bit(kind: str, name: str, n_rows: int, seed: int, weighted: bool) -> None:
    y, p, w = sample(kind, n_rows, seed, weighted)
    order = np.random.default_rng(seed + 1).permutation(n_rows)
    permuted = y[order], p[..., order], None if w is None else w[order]
    assert value(name, permuted).hex() == value(name, (y, p, w)).hex()


def adds_up(name: str) -> bool:
    return isinstance(metric(name).function, SummedMetric)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "name"), [case for case in ALL_CASES if adds_up(case[1])])
@settings(max_examples=40)
@given(
    n_rows=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    seed=st.integers(0, 2**32),
    weighted=st.booleans(),
)
def test_parts_add_up_to_the_bits_of_the_whole(
    kind: str, name: str, n_rows: int, cuts: list[int], seed: int, weighted: bool
) -> None:
    y, p, w = sample(kind, n_rows, seed, weighted)
    function = metric(name).function
    assert isinstance(function, SummedMetric)
    n_outputs = len(p) if p.ndim == 2 else 1
    merged = function.no_sums(n_outputs)
    for start, stop in pairwise(sorted({0, n_rows, *(min(cut, n_rows) for cut in cuts)})):
        part, own = slice(start, stop), function.no_sums(n_outputs)
        function.add(own, y[part], p[..., part], None if w is None else w[part], None)
        merged += own
    assert function.value(merged).hex() == value(name, (y, p, w)).hex()


@pytest.mark.parametrize(("kind", "name"), ALL_CASES)
def test_a_row_without_weight_is_no_row(kind: str, name: str) -> None:
    for seed in range(20):
        y, p, w = sample(kind, 40, seed, True)
        assert w is not None
        # One class has no weight at all.
        w = np.where((y == y[0]) | (np.arange(40) % 3 == 0), 0.0, w)
        kept = w > 0.0
        if kept.any():
            expected = value(name, (y[kept], p[..., kept], w[kept]))
            assert value(name, (y, p, w)) == pytest.approx(expected, rel=EXACT, abs=EXACT, nan_ok=True)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_whole_weights_repeat_rows(kind: str, name: str) -> None:
    y, p, _ = sample(kind, 200, 3, False)
    times = np.random.default_rng(1).integers(0, 4, 200)
    repeated = np.repeat(y, times), np.repeat(p, times, axis=-1), None
    weighted = value(name, (y, p, times.astype(np.float64)))
    assert weighted == pytest.approx(value(name, repeated), rel=1e-15)


@pytest.mark.parametrize("name", [name for _, name in ALL_CASES])
def test_nothing_that_weighs_anything_gives_a_value_or_nan(name: str) -> None:
    p = np.full((N_CLASSES, 3), 0.25) if ("multi", name) in CASES else np.full(3, 0.25)
    found = value(name, (np.zeros(3), p, np.zeros(3)))
    assert math.isnan(found) or found in (0.0, 1.0)


@pytest.mark.parametrize("name", ["average_precision", "aucpr", "brier", "calibration_error", "r2", "rmsle"])
def test_a_prediction_of_nan_gives_nan(name: str) -> None:
    assert math.isnan(value(name, (np.array([1.0, 0.0, 1.0]), np.array([0.5, math.nan, 0.2]), None)))


@pytest.mark.parametrize("offset", [0.0, 1e8, -1e15])
def test_r2_keeps_its_digits_far_from_zero(offset: float) -> None:
    random = np.random.default_rng(4)
    y = np.round(random.normal(size=500) * 64) + offset
    p, weight = y + np.round(random.normal(size=500) * 8), random.random(500)
    for own in (None, weight):
        near = value("r2", (y - offset, p - offset, own))
        assert value("r2", (y, p, own)) == pytest.approx(near, rel=1e-14)


def test_r2_of_equal_targets_is_one_or_nothing() -> None:
    random = np.random.default_rng(0)
    for constant in random.normal(size=100):
        y, weight = np.full(50, constant), random.random(50)
        for own in (None, weight):
            assert value("r2", (y, y, own)) == 1.0
            assert value("r2", (y, y + 0.01, own)) == 0.0


def test_r2_of_predictions_beyond_all_measure_is_minus_infinity() -> None:
    assert value("r2", (np.array([0.0, 1e-100]), np.array([1e150, 0.0]), None)) == -math.inf


def test_rmsle_takes_predictions_of_minus_one_as_just_above_and_keeps_small_numbers() -> None:
    worst = math.log1p(3.0) - math.log(1e-6)
    assert value("rmsle", (np.array([3.0]), np.array([-7.0]), None)) == pytest.approx(worst, rel=1e-9)
    found = value("rmsle", (np.array([1e-20]), np.array([3e-20]), None))
    assert found == pytest.approx(2e-20, rel=1e-12)


def test_names_that_hold_a_number() -> None:
    names = ["quantile@0.25", "pinball@0.9", "top_2_error", "ndcg@4", "mrr@1", "err"]
    found = metrics_for(names, objective_alpha=0.7, eval_at=(3,))
    assert [each.name for each in found] == ["pinball@0.25", "pinball@0.9", "top_2_error", "ndcg@4", "mrr@1", "err@3"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pinball@1", "'pinball@1' must name a level above 0 and below 1, such as pinball@0.1"),
        ("pinball@low", "'pinball@low' must name a level"),
        ("quantile@nan", "'quantile@nan' must name a level"),
        ("top_0_error", "'top_0_error' must name a number of classes from 1 on"),
        ("ndcg@", "'ndcg@' must name a number of positions, such as ndcg@5"),
        ("map@0", "eval_at must hold whole numbers of positions from 1 on, got 0"),
        ("top_k_error", "unknown metric 'top_k_error'. Did you mean 'top_3_error'"),
    ],
)
def test_a_number_that_makes_no_sense_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics_for([name], objective_alpha=0.7, eval_at=())


@pytest.mark.parity
@pytest.mark.parametrize("weighted", [False, True])
def test_precision_recall_and_r2_are_those_of_xgboost_and_lightgbm(weighted: bool) -> None:
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 800).astype(np.float64)
    p = np.round(np.clip(0.3 * y + 0.7 * random.random(800), 0, 1) * 256) / 256
    w = random.integers(1, 9, 800).astype(np.float64) if weighted else None
    matrix = xgboost.DMatrix(np.zeros((800, 1)), y, weight=w, base_margin=p)
    booster = xgboost.train({"objective": "reg:squarederror", "eval_metric": "aucpr"}, matrix, 0)
    theirs = float(booster.eval(matrix).rpartition(":")[2])
    assert value("aucpr", (y, p, w)) == pytest.approx(theirs, rel=1e-5)
    data = lightgbm.Dataset(np.zeros((800, 1)), y, weight=w, init_score=p, params={"feature_pre_filter": False})
    results: dict[str, dict[str, list[float]]] = {}
    settings = {"objective": "regression", "metric": ["average_precision", "r2"], "verbosity": -1}
    record = lightgbm.record_evaluation(results)
    lightgbm.train(settings, data, 1, valid_sets=[data], valid_names=["rows"], callbacks=[record])
    for name in ("average_precision", "r2"):
        assert value(name, (y, p, w)) == pytest.approx(results["rows"][name][-1], rel=1e-6)


@pytest.mark.parity
def test_names_of_catboost_give_catboosts_values() -> None:
    utilities = pytest.importorskip("catboost.utils")
    random = np.random.default_rng(0)
    y, p = random.integers(0, 2, 500).astype(np.float64), random.random(500)
    log_odds = np.log(p / (1.0 - p))
    for name in ("F1", "MCC", "BalancedAccuracy", "Accuracy", "BrierScore", "AUC", "TotalF1"):
        assert value(name, (y, p, None)) == pytest.approx(utilities.eval_metric(y, log_odds, name)[0], rel=EXACT)
    assert value("R2", (y, p, None)) == pytest.approx(utilities.eval_metric(y, p, "R2")[0], rel=EXACT)
    several = random.integers(0, 3, 500).astype(np.float64)
    probability = np.ascontiguousarray(random.dirichlet(np.ones(3), 500).T)
    for name in ("MCC", "Accuracy", "TotalF1"):
        (theirs,) = utilities.eval_metric(several, np.log(probability.T), name)
        assert value(name, (several, probability, None)) == pytest.approx(theirs, rel=EXACT)


@pytest.mark.parity
@pytest.mark.parametrize("k", [1, 3, 10])
def test_reciprocal_ranks_are_those_of_catboost(k: int) -> None:
    utilities = pytest.importorskip("catboost.utils")
    random = np.random.default_rng(0)
    sizes = random.integers(1, 20, 40)
    n_rows = int(sizes.sum())
    labels = (random.integers(0, 4, n_rows) * (random.random(n_rows) < 0.2)).astype(np.float64)
    score, queries = random.random(n_rows), np.repeat(np.arange(40), sizes)
    satisfied = (2.0**labels - 1.0) / 2.0 ** labels.max()
    for name, target in (("MRR", np.minimum(labels, 1.0)), ("ERR", satisfied)):
        (theirs,) = utilities.eval_metric(target, score, f"{name}:top={k}", group_id=queries)
        found = metric(f"{name.lower()}@{k}").function(labels, score, None, np.append(0, sizes.cumsum()))
        assert found == pytest.approx(theirs, rel=EXACT)
