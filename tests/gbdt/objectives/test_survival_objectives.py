"""Losses and metrics of survival times agree with naive oracles and XGBoost, in any order and wherever the rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm import DMLGBMRegressor, load_model
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.metrics.risk_sets import RiskSets
from dmlgbm.gbdt.metrics.survival import SurvivalModel
from dmlgbm.gbdt.objectives import ObjectiveSettings, transform
from dmlgbm.gbdt.objectives.binary import Balance
from dmlgbm.gbdt.parameters import ParameterError
from tests.gbdt.objectives.test_objectives import WEIGHTED, derivatives, make
from tests.gbdt.ranks.test_rank_equality import SETTINGS, make_fit
from tests.reference import objectives as naive
from tests.reference.rank_fits import even_deal, over_ranks

FloatArray = npt.NDArray[np.float64]
DISTRIBUTIONS = ["normal", "logistic", "extreme"]
SMALL: dict[str, Any] = {"n_estimators": 10, "num_leaves": 7, "n_jobs": 1}


def patients(n_rows: int = 400, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Rows, and times with ties, negative where the event did not come."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 4))
    time = np.ceil(8.0 * np.exp(X[:, 0] + 0.5 * random.normal(size=n_rows))) / 4.0
    end = np.ceil(16.0 * np.exp(random.normal(size=n_rows))) / 4.0
    return X, np.where(time <= end, time, -end)


def weights_for(n_rows: int, weighted: bool) -> FloatArray | None:
    return np.random.default_rng(5).choice([0.3, 1.0, 5.0], n_rows) if weighted else None


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@WEIGHTED
def test_failure_times_match_slopes_of_the_likelihood(distribution: str, weighted: bool) -> None:
    _, times = patients(200)
    weight = weights_for(200, weighted)
    score = np.random.default_rng(1).normal(size=(1, 200)) + 1.0
    objective = make("aft", times, weight, distribution=distribution, distribution_scale=0.8)
    gradients, hessians = derivatives(objective, score)
    step = 1e-3
    for row in range(200):
        at = [score[0, row] + shift for shift in (-step, 0.0, step)]
        below, here, above = (naive.failure_time_loss(distribution, times[row], own, 0.8) for own in at)
        factor = 1.0 if weight is None else weight[row]
        slope = min(max((above - below) / (2.0 * step), -15.0), 15.0)
        curvature = min((above - 2.0 * here + below) / step**2, 15.0)
        assert gradients[0, row] == pytest.approx(factor * slope, rel=2e-4, abs=1e-4)
        assert hessians[0, row] == pytest.approx(factor * curvature, rel=1e-3, abs=1e-3)
    expected = np.average(np.log(np.abs(times)), weights=weight)
    assert objective.base_scores()[0] == pytest.approx(expected, rel=1e-12)


@WEIGHTED
def test_cox_matches_the_partial_likelihood(weighted: bool) -> None:
    _, times = patients(150)
    weight = weights_for(150, weighted)
    score = np.random.default_rng(2).normal(size=(1, 150))
    gradients, hessians = derivatives(make("cox", times, weight), score)
    _, gradient, hessian = naive.partial_likelihood(times, score[0], np.ones(150) if weight is None else weight)
    np.testing.assert_allclose(gradients[0], gradient, 1e-6, 1e-6)
    np.testing.assert_allclose(hessians[0], hessian, 1e-6, 1e-6)
    step = 1e-5
    for row in range(0, 150, 10):
        moved = [score[0].copy(), score[0].copy()]
        moved[0][row] -= step
        moved[1][row] += step
        below, above = (
            naive.partial_likelihood(times, own, np.ones(150) if weight is None else weight)[0] for own in moved
        )
        assert gradients[0, row] == pytest.approx((above - below) / (2.0 * step), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["cox", "aft"])
@WEIGHTED
def test_the_order_of_rows_does_not_matter(name: str, weighted: bool) -> None:
    _, times = patients(3_001)
    weight = weights_for(3_001, weighted)
    score = np.random.default_rng(3).normal(size=(1, 3_001)) * 3.0
    order = np.random.default_rng(4).permutation(3_001)
    straight = derivatives(make(name, times, weight), score)
    shuffled = derivatives(
        make(name, times[order], None if weight is None else weight[order]), np.ascontiguousarray(score[:, order])
    )
    for one, other in zip(straight, shuffled, strict=True):
        assert np.ascontiguousarray(one[:, order]).tobytes() == other.tobytes()


def test_sums_over_risk_sets_have_no_order() -> None:
    _, times = patients(3_001)
    weight, score = weights_for(3_001, True), np.random.default_rng(3).normal(size=3_001) * 3.0
    assert weight is not None
    order = np.random.default_rng(4).permutation(3_001)
    _, straight = RiskSets(times, RowWeights(weight)).at_risk(score)
    _, shuffled = RiskSets(times[order], RowWeights(weight[order])).at_risk(score[order])
    assert straight.tobytes() == shuffled.tobytes()
    later = [abs(times) >= time for time in np.unique(abs(times))]
    expected = np.array([(weight * np.exp(score - score.max()))[rows].sum() for rows in later])
    np.testing.assert_allclose(straight, expected * straight[0] / expected[0], 1e-9)


def test_scores_far_apart_stay_finite() -> None:
    score = np.array([[0.0, 300.0, -300.0, 5.0, 1e5, -1e5]])
    times = np.array([1.0, -2.0, 3.0, 3.0, -1e-3, 1e5])
    cases: list[tuple[str, dict[str, Any]]] = [("cox", {}), *(("aft", {"distribution": own}) for own in DISTRIBUTIONS)]
    for name, options in cases:
        for values in derivatives(make(name, times, **options), score):
            assert np.isfinite(values).all(), (name, options)


def values_of(metric: str, times: FloatArray, prediction: FloatArray, weight: Any = None, **model: Any) -> float:
    (found,) = metrics_for([metric], objective_alpha=0.5, eval_at=(), survival=SurvivalModel(**model))
    return found.function(times, prediction, weight, None)


@WEIGHTED
def test_likelihoods_match_the_oracle(weighted: bool) -> None:
    _, times = patients(120)
    weight = weights_for(120, weighted)
    ones = np.ones(120) if weight is None else weight
    score = np.random.default_rng(6).normal(size=120)
    expected = naive.partial_likelihood(times, score, ones)[0] / ones[times > 0].sum()
    assert values_of("cox-nloglik", times, np.exp(score), weight) == pytest.approx(expected, rel=1e-9)
    for distribution in DISTRIBUTIONS:
        losses = [naive.failure_time_loss(distribution, times[row], score[row], 1.3) for row in range(120)]
        found = values_of("aft_nloglik", times, np.exp(score), weight, distribution=distribution, scale=1.3)
        assert found == pytest.approx(np.average(losses, weights=ones), rel=1e-6)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-5, 5).filter(bool), st.integers(0, 4)), min_size=1, max_size=25))
def test_concordance_matches_all_pairs(rows: list[tuple[int, int]]) -> None:
    times, risk = (np.array(values, float) for values in zip(*rows, strict=True))
    assert values_of("c_index", times, risk, predicts_risk=True) == naive.concordance(times, risk)
    assert values_of("c_index", times, risk) == naive.concordance(times, -risk)


def forms_of(times: FloatArray) -> dict[str, Any]:
    event, time = times > 0, np.abs(times)
    structured = np.empty(len(times), [("dead", bool), ("days", float)])
    structured["dead"], structured["days"] = event, time
    return {"signed": times, "structured": structured, "bounds": np.column_stack([time, np.where(event, time, np.inf)])}


@pytest.mark.parametrize("objective", ["cox", "survival:aft"])
def test_all_forms_of_times_mean_the_same(objective: str) -> None:
    X, times = patients()
    models = {
        name: DMLGBMRegressor(objective=objective, **SMALL).fit(X, y, eval_set=[(X, y)])
        for name, y in forms_of(times).items()
    }
    bytes_of = {name: model.booster_.to_bytes() for name, model in models.items()}
    assert len(set(bytes_of.values())) == 1
    scores = {model.score(X, y) for model, y in zip(models.values(), forms_of(times).values(), strict=True)}
    assert len(scores) == 1
    risk = models["signed"].predict(X) * (1.0 if objective == "cox" else -1.0)
    assert scores.pop() == naive.concordance(times, risk) > 0.8


@pytest.mark.medium
@pytest.mark.parametrize("objective", ["cox", "aft"])
@pytest.mark.parametrize(
    "options",
    ["forest", "dropout", "dropout of one-sided samples", "one-sided", "bayesian", "mvs", "ordered loosely", "apart"],
)
def test_every_way_of_boosting_learns_times_wherever_rows_are(options: str, objective: str) -> None:
    fit = make_fit(objective, SETTINGS[options], n_rows=1_201)
    booster = fit.locally().booster
    results = over_ranks(fit, even_deal(1_201, 2), tree_learner="data")
    assert {result.booster.to_bytes() for result in results} == {booster.to_bytes()}
    predictions = transform(objective, booster.raw_scores(fit.rows.table))[0]
    assert values_of("c_index", fit.rows.target, predictions, predicts_risk=objective == "cox") > 0.6


@pytest.mark.parametrize("objective", ["cox", "aft"])
def test_risks_and_times_keep_the_order_of_constraints(objective: str) -> None:
    X, times = patients()
    model = DMLGBMRegressor(objective=objective, monotone_constraints=[-1, 0, 0, 0], **SMALL).fit(X, times)
    along = np.tile(X[:50], (20, 1, 1))
    along[:, :, 0] = np.linspace(-3.0, 3.0, 20)[:, None]
    predictions = np.array([model.predict(rows) for rows in along])
    assert (np.diff(predictions, axis=0) <= 0.0).all()
    # Times grow with the first column, which a constraint the wrong way forbids to say.
    assert (predictions[0] > predictions[-1]).any() == (objective == "cox")


@pytest.mark.parametrize(
    ("objective", "metric", "message"),
    [
        ("aft", "cox_nloglik", "eval_metric='cox_nloglik' needs objective 'cox', which predicts hazards"),
        ("cox", "aft-nloglik", "eval_metric='aft_nloglik' needs objective 'aft', which predicts times"),
        ("regression", "c_index", "eval_metric='c_index' needs survival times, with objective 'cox' or 'aft'"),
        ("cox", "rmse", "eval_metric='rmse' cannot read survival times, .* choose c_index or cox_nloglik"),
        ("aft", "mae", "eval_metric='l1' cannot read survival times, .* choose c_index or aft_nloglik"),
    ],
)
def test_metrics_of_other_predictions_are_refused(objective: str, metric: str, message: str) -> None:
    X, times = patients()
    with pytest.raises(ParameterError, match=message):
        DMLGBMRegressor(objective=objective, eval_metric=metric).fit(X, times, eval_set=[(X, times)])


@pytest.mark.parametrize("objective", ["cox", "aft"])
def test_what_weighs_classes_is_refused(objective: str) -> None:
    with pytest.raises(ParameterError, match=f"does not fit objective '{objective}'"):
        ObjectiveSettings(objective, balance=Balance(scale_pos_weight=2.0))


@pytest.mark.parametrize("objective", ["cox", "aft"])
def test_predictions_are_exponentials_and_survive_saving(objective: str, tmp_path: Path) -> None:
    X, times = patients()
    model = DMLGBMRegressor(objective=objective, aft_loss_distribution="logistic", **SMALL).fit(X, times)
    np.testing.assert_allclose(model.predict(X), np.exp(model.predict(X, raw_score=True)), 1e-13)
    assert model.one_row()(X[0]) == model.predict(X[:1])[0]
    model.save_model(tmp_path / "m.dml")
    loaded = load_model(tmp_path / "m.dml")
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()
    assert loaded.get_params()["aft_loss_distribution"] == "logistic"
    assert loaded.score(X, times) == model.score(X, times)


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"objective": "cox"}, [1.0, 0.0, 2.0], "row 1 is 0.0, but objective 'cox' needs times above 0"),
        ({"objective": "aft"}, [-1.0, -3.0, -2.0], "All rows are censored, but objective 'aft' needs one"),
        (
            {"objective": "aft"},
            [[1.0, 2.0], [1.0, 1.0], [2.0, np.inf]],
            r"bounds \(1, 2\) in row 0: the upper one must",
        ),
        ({"objective": "aft"}, [[-1.0, -1.0], [1.0, 1.0], [2.0, np.inf]], "time -1 in row 0: times must be above 0"),
        ({"objective": "cox"}, np.zeros(3, [("time", float), ("event", bool)]), "has the fields time, event"),
        ({"objective": "regression"}, np.zeros(3, [("event", bool), ("time", float)]), "y holds"),
        (
            {"objective": "aft", "aft_loss_distribution": "weibull"},
            [1.0, 2.0, -3.0],
            "aft_loss_distribution='weibull' is not one of 'normal', 'logistic', 'extreme'",
        ),
        (
            {"objective": "aft", "aft_loss_distribution_scale": 0.0},
            [1.0, 2.0, -3.0],
            "aft_loss_distribution_scale=0.0 is out of range",
        ),
    ],
)
def test_bad_times_are_named(parameters: dict[str, Any], y: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        DMLGBMRegressor(**parameters).fit(np.arange(6.0).reshape(3, 2), y)


@pytest.mark.parity
@pytest.mark.parametrize("distribution", [None, *DISTRIBUTIONS])
def test_learns_as_xgboost_does(distribution: str | None) -> None:
    """One step of one split, which rounding cannot decide about, and the metric after it."""
    xgboost = pytest.importorskip("xgboost")
    _, times = patients(2_000)
    X = np.random.default_rng(3).integers(0, 2, (2_000, 1)).astype(float)
    # Without ties: XGBoost lets a row's derivatives depend on where it stands among those of its time.
    times = times * np.where(X[:, 0] > 0, 1.3, 1.0) * np.linspace(1.0, 1.001, 2_000)
    tree: Any = {"learning_rate": 1.0, "max_depth": 1, "lambda": 0.0, "min_child_weight": 0.0, "nthread": 1}
    ours: Any = {"objective": "cox"} if distribution is None else {"objective": "aft"}
    if distribution is None:
        data, theirs = xgboost.DMatrix(X, times), {"objective": "survival:cox"}
    else:
        ours["aft_loss_distribution"] = distribution
        data = xgboost.DMatrix(X)
        data.set_float_info("label_lower_bound", np.abs(times))
        data.set_float_info("label_upper_bound", np.where(times > 0, times, np.inf))
        start = float(np.exp(np.log(np.abs(times)).mean()))
        theirs = {"objective": "survival:aft", "aft_loss_distribution": distribution, "base_score": start}
    booster = xgboost.train({**tree, **theirs, "tree_method": "hist"}, data, 1)
    model = DMLGBMRegressor(n_estimators=1, num_leaves=2, learning_rate=1.0, min_child_samples=1, **ours)
    model.fit(X, times, eval_set=[(X, times)])
    expected = booster.predict(data)
    found = model.predict(X)
    if distribution is None:
        found, expected = found / found[0], expected / expected[0]
    np.testing.assert_allclose(found, expected, 2e-3)
    (values,) = model.evals_result_["valid_0"].values()
    assert values[-1] == pytest.approx(float(booster.eval(data).split(":")[-1]), rel=1e-3)
