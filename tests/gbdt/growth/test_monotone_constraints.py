"""No prediction falls where it must not, for any objective and method; each split is the best one within its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, Table
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.kernels.layout import FEATURE_RULES, NODE, TreeNodes
from dmlgbm.gbdt.kernels.output_bounds import put_in_order
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.training import train
from tests.gbdt.growth.test_split_search import FORMS, FREE, categorical, grown, numeric, problem_of, rare
from tests.reference import trees as naive
from tests.reference.trees import Problem

FloatArray = npt.NDArray[np.float64]
METHODS = ("basic", "intermediate")
OBJECTIVES = {
    "regression": ObjectiveSettings("regression"),
    "regression_l1": ObjectiveSettings("regression_l1"),
    "quantile": ObjectiveSettings("quantile", alpha=0.8),
    "poisson": ObjectiveSettings("poisson"),
    "binary": ObjectiveSettings("binary"),
    "multiclass": ObjectiveSettings("multiclass", n_classes=3),
    "multiclassova": ObjectiveSettings("multiclassova", n_classes=3),
    "huber": ObjectiveSettings("huber"),
    "mape": ObjectiveSettings("mape"),
    "tweedie": ObjectiveSettings("tweedie"),
}
N_CONSTRAINED = 2
DIRECTIONS = (1, -1, 0, 0)
FREE_COLUMNS, PLAIN_COLUMNS = (0,) * 5, (1.0,) * 5


def mixed_table(random: np.random.Generator, n_rows: int) -> FloatArray:
    """Two constrained columns and a free one, all with gaps, and a column of codes."""
    values = random.normal(size=(n_rows, 4))
    values[:, 1] = np.floor(3 * values[:, 1])
    values[:, 3] = random.integers(0, 6, n_rows)
    values[random.random((n_rows, 4)) < [0.1, 0.0, 0.2, 0.1]] = np.nan
    return values


def as_table(values: FloatArray) -> Table:
    codes = np.nan_to_num(values[:, 3], nan=-1).astype(np.int8)
    numbers = [NumericColumn(np.ascontiguousarray(values[:, k])) for k in range(3)]
    return Table((*numbers, CategoricalColumn(codes, tuple(range(6)))), len(values))


def against_the_constraints(random: np.random.Generator, values: FloatArray, objective: str) -> FloatArray:
    """Targets that rise and fall along both constrained columns."""
    filled = np.nan_to_num(values)
    signal = np.sin(3 * filled[:, 0]) + filled[:, 1] * filled[:, 2] / 3 + (filled[:, 3] == 2)
    noisy = signal + 0.5 * random.normal(size=len(values))
    if objective in ("poisson", "tweedie"):
        return random.poisson(np.exp(signal)).astype(np.float64)
    if objective == "binary":
        return (noisy > 0).astype(np.float64)
    return np.digitize(noisy, [-0.5, 0.5]).astype(np.float64) if objective.startswith("multiclass") else noisy


def pairs(random: np.random.Generator, n_pairs: int) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """For each constrained column, rows and what becomes of them as its value grows."""
    for column in range(N_CONSTRAINED):
        lower = mixed_table(random, n_pairs)
        upper = lower.copy()
        # Also beyond what training met, and by one step only.
        ends = np.sort(2.5 * random.normal(size=(2, n_pairs)), axis=0)
        lower[:, column], upper[:, column] = ends
        yield column, lower, upper


def violations(model: Booster, random: np.random.Generator, n_pairs: int) -> int:
    found = 0
    for column, lower, upper in pairs(random, n_pairs):
        change = model.raw_scores(as_table(upper)) - model.raw_scores(as_table(lower))
        found += int(np.count_nonzero(DIRECTIONS[column] * change < 0))
    return found


def fitted(random: np.random.Generator, n_rows: int, objective: str, **options: Any) -> Booster:
    values = mixed_table(random, n_rows)
    rows = Rows(as_table(values), against_the_constraints(random, values, objective), *options.pop("more", ()))
    parameters = TrainParameters(**{"monotone_constraints": DIRECTIONS, "n_estimators": 10} | options)
    return train(parameters, BinningParameters(), rows, OBJECTIVES[objective]).booster


@pytest.mark.medium
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_pair_of_many_is_out_of_order(objective: str, method: str) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        options = {"min_child_samples": 5, "learning_rate": 0.3, "n_estimators": 30, "num_leaves": 40}
        model = fitted(random, 3000, objective, monotone_constraints_method=method, **options)
        assert model.trees[0].n_nodes > 10
        assert violations(model, random, 100_000) == 0


@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 300),
    st.sampled_from(sorted(OBJECTIVES)),
    st.fixed_dictionaries(
        {
            "monotone_constraints_method": st.sampled_from(METHODS),
            "min_child_samples": st.sampled_from([1, 3, 20]),
            "min_child_weight": st.sampled_from([0.0, 1.0]),
            "reg_alpha": st.sampled_from([0.0, 0.7]),
            "reg_lambda": st.sampled_from([0.0, 2.0]),
            "learning_rate": st.sampled_from([0.1, 1.0]),
            "num_leaves": st.sampled_from([2, 7, 60]),
            "grow_policy": st.sampled_from(["leafwise", "depthwise"]),
            "precision": st.sampled_from(["fast", "exact"]),
            "subsample": st.sampled_from([1.0, 0.5]),
            "subsample_freq": st.just(1),
            "colsample_bynode": st.sampled_from([1.0, 0.5]),
        }
    ),
)
def test_no_fit_is_out_of_order(seed: int, n_rows: int, objective: str, options: dict[str, Any]) -> None:
    random = np.random.default_rng(seed)
    weight = random.choice([0.0, 0.3, 1.0, 2.0], n_rows) if seed % 2 else None
    try:
        model = fitted(random, n_rows, objective, n_estimators=4, more=(weight,), **options)
    except ValueError as error:
        assume("All targets" not in str(error))  # none above 0 has any weight
        raise
    assert violations(model, random, 300) == 0


@pytest.mark.medium
@pytest.mark.parametrize("objective", ["regression", "quantile", "binary"])
@pytest.mark.parametrize(
    "way",
    [
        {"boosting_type": "dart", "skip_drop": 0.0, "drop_rate": 0.5},
        {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1},
        {"data_sample_strategy": "goss", "learning_rate": 0.5},
        {"bootstrap_type": "bayesian"},
        {"learning_rates": (0.5, 0.1, 0.8, 0.3, 0.2, 0.9, 0.1, 0.1, 0.1, 0.1)},
    ],
    ids=str,
)
def test_no_way_of_boosting_is_out_of_order(objective: str, way: dict[str, Any]) -> None:
    random = np.random.default_rng(7)
    model = fitted(random, 3000, objective, min_child_samples=5, **way)
    assert max(tree.n_nodes for tree in model.trees) > 10
    assert violations(model, random, 20_000) == 0


def test_without_constraints_the_same_rows_are_out_of_order() -> None:
    random = np.random.default_rng(0)
    assert violations(fitted(random, 3000, "regression", monotone_constraints=None), random, 1000) > 0


def test_a_model_that_is_gone_on_from_stays_in_order() -> None:
    random = np.random.default_rng(1)
    values = mixed_table(random, 2000)
    rows = Rows(as_table(values), against_the_constraints(random, values, "regression"))
    parameters = TrainParameters(monotone_constraints=DIRECTIONS, n_estimators=5, learning_rate=0.5)
    settings_of = (BinningParameters(), rows, OBJECTIVES["regression"])
    first = train(parameters, *settings_of).booster
    both = train(replace(parameters, seed=3), *settings_of, initial_model=first).booster
    assert both.n_iterations == 10
    assert violations(both, random, 20_000) == 0


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_change_the_model(method: str) -> None:
    models = [
        fitted(
            np.random.default_rng(3), 70_001, "binary", monotone_constraints_method=method, n_threads=n_threads,
            num_leaves=100, n_estimators=3,
        )
        for n_threads in (1, 2, 3)
    ]  # fmt: skip
    assert len({model.to_bytes() for model in models}) == 1
    assert models[0].trees[0].n_leaves == 100


@dataclass(frozen=True)
class Frame:
    """What decides about the value of a leaf beside its sums."""

    lower: Any = -inf
    upper: Any = inf
    parent_output: Fraction | None = None

    def output(self, problem: Problem, rows: Sequence[int]) -> Fraction:
        parameters = problem.parameters
        gradient, hessian, count = naive.sums(problem, rows)
        shrunk = max(abs(gradient) - Fraction(parameters.reg_alpha), Fraction(0))
        step = shrunk / (hessian + Fraction(parameters.reg_lambda))
        value = -step if gradient > 0 else step
        if self.parent_output is not None:
            share = Fraction(count) / (count + Fraction(parameters.path_smooth))
            value = value * share + self.parent_output * (1 - share)
        return min(max(value, self.lower), self.upper)


def removed(problem: Problem, rows: Sequence[int], value: Fraction) -> Fraction:
    """Twice the loss that a leaf removes."""
    gradient, hessian, _ = naive.sums(problem, rows)
    curvature = hessian + Fraction(problem.parameters.reg_lambda)
    return -(2 * gradient * value + curvature * value**2 + 2 * Fraction(problem.parameters.reg_alpha) * abs(value))


def gain_within(
    problem: Problem, rows: tuple[int, ...], left_bins: frozenset[int], number: int, frame: Frame
) -> Fraction | None:
    """What a threshold gains, as it counts at its column; None if it is not allowed."""
    parameters, feature = problem.parameters, problem.features[number]
    own = frame.output(problem, rows)
    of_children = replace(frame, parent_output=own)
    gain, outputs = -removed(problem, rows, own), []
    for is_left in (True, False):
        side = [row for row in rows if (int(feature.bins[row]) in left_bins) is is_left]
        _, hessian, count = naive.sums(problem, side)
        if count < max(1, parameters.min_child_samples) or hessian < max(1, parameters.min_child_weight):
            return None
        outputs.append(of_children.output(problem, side))
        gain += removed(problem, side, outputs[-1])
    if (parameters.monotone_constraints or FREE_COLUMNS)[number] * (outputs[1] - outputs[0]) < 0:
        return None
    return gain * Fraction((parameters.feature_contri or PLAIN_COLUMNS)[number])


def frames_of_children(
    problem: Problem, rows: tuple[int, ...], sides: tuple[tuple[int, ...], tuple[int, ...]], number: int, frame: Frame
) -> tuple[Frame, Frame]:
    parameters, inherited = problem.parameters, replace(frame, parent_output=frame.output(problem, rows))
    direction = (parameters.monotone_constraints or FREE_COLUMNS)[number]
    if direction == 0:
        return inherited, inherited
    left, right = (inherited.output(problem, side) for side in sides)
    if parameters.monotone_constraints_method == "basic":
        left = right = (left + right) / 2
    if direction > 0:
        return replace(inherited, upper=right), replace(inherited, lower=left)
    return replace(inherited, lower=right), replace(inherited, upper=left)


def check_splits(problem: Problem, tree: GrownTree) -> None:
    """Every split gains as much as the best threshold of its rows does, by what the way to it leaves open."""
    nodes = tree.nodes
    here: dict[int, tuple[tuple[int, ...], Frame]] = {0: (tuple(range(len(problem.gradients))), Frame())}
    for node in tree.splits.tolist():
        rows, frame = here.pop(node)
        gains = [
            gain
            for number, feature in enumerate(problem.features)
            for _, left_bins, _ in naive._thresholds(rows, feature)
            if (gain := gain_within(problem, rows, left_bins, number, frame)) is not None
        ]
        number, feature = int(nodes["feature"][node]), problem.features[int(nodes["feature"][node])]
        left_bins = frozenset(range(int(nodes["bin"][node]) + 1))
        left_bins |= {feature.missing_bin} if nodes["missing_left"][node] else set()
        own = gain_within(problem, rows, left_bins, number, frame)
        assert own is not None
        assert float(nodes["gain"][node]) == pytest.approx(float(own), rel=1e-9, abs=1e-9)
        assert float(own) == pytest.approx(float(max(gains)), rel=1e-9, abs=1e-9)
        left = tuple(row for row in rows if int(feature.bins[row]) in left_bins)
        sides = left, tuple(row for row in rows if row not in set(left))
        first, frames = int(nodes["left"][node]), frames_of_children(problem, rows, sides, number, frame)
        here |= {first + k: (sides[k], frames[k]) for k in (0, 1)}


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(FORMS)),
    st.integers(10, 60),
    st.sampled_from(METHODS),
    st.booleans(),
    st.sampled_from([0.0, 2.5, 40.0]),
    st.fixed_dictionaries(
        {
            "min_child_samples": st.sampled_from([1, 4]),
            "min_child_weight": st.sampled_from([0.0, 6.0]),
            "reg_lambda": st.sampled_from([0.0, 3.0]),
            "reg_alpha": st.sampled_from([0.0, 2.0]),
        }
    ),
)
def test_every_split_is_the_best_within_its_bounds(
    seed: int, form: str, n_rows: int, method: str, is_ordered: bool, path_smooth: float, rules: dict[str, float]
) -> None:
    random = np.random.default_rng(seed)
    columns: list[Column] = [numeric(random, n_rows) for _ in range(3)] + [rare(random, n_rows) for _ in range(2)]
    problem, dataset, quantised = problem_of(random, columns, n_rows, form, FREE | rules)
    directions = tuple(random.integers(-1, 2, len(columns)).tolist()) if is_ordered else None
    factors = tuple(random.choice([0.0, 0.5, 1.0, 3.0], len(columns)).tolist()) if seed % 2 else None
    parameters = replace(
        problem.parameters, num_leaves=6, monotone_constraints=directions, monotone_constraints_method=method,
        path_smooth=path_smooth, feature_contri=factors,
    )  # fmt: skip
    tree = grown(replace(problem, parameters=parameters), dataset, quantised)
    kept = {
        name: tuple(listed[feature] for feature in dataset.plan.features)
        for name in ("monotone_constraints", "feature_contri")
        if (listed := getattr(parameters, name)) is not None
    }
    check_splits(replace(problem, parameters=replace(parameters, **kept)), tree)


def test_sets_of_categories_are_rated_within_bounds() -> None:
    """Below a constrained split, what a set of categories gains is what it gains within the bounds."""
    random = np.random.default_rng(2)
    n_rows = 400
    columns = [numeric(random, n_rows), categorical(random, n_rows, 3)]
    for method in METHODS:
        problem, dataset, quantised = problem_of(random, columns, n_rows, "packed", FREE)
        parameters = replace(
            problem.parameters, num_leaves=12, monotone_constraints=(1, 0), monotone_constraints_method=method
        )
        tree = grown(replace(problem, parameters=parameters), dataset, quantised)
        nodes = tree.nodes
        by_category = [
            node for node in tree.splits.tolist() if nodes["bin"][node] < 0 and np.isfinite(nodes["lower"][node])
        ]
        assert by_category
        for node in by_category:
            first, last = nodes["left"][node], nodes["left"][node] + 1
            parts = [(int(nodes["gradient"][k]), int(nodes["hessian"][k])) for k in (first, last)]
            whole = int(nodes["gradient"][node]), int(nodes["hessian"][node])
            bounds = float(nodes["lower"][node]), float(nodes["upper"][node])
            gain = sum(loss_removed(*part, *bounds) for part in parts) - loss_removed(*whole, *bounds)
            assert float(nodes["gain"][node]) == pytest.approx(gain, rel=1e-9)


def loss_removed(gradient: int, hessian: int, lower: float, upper: float) -> float:
    """Twice what a leaf removes within bounds, without penalties."""
    value = min(max(-gradient / hessian, lower), upper)
    return -(2 * gradient * value + hessian * value**2)


def chain_of_splits(directions: list[int]) -> tuple[TreeNodes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A tree in which every split but the last has a leaf on its left and a split on its right."""
    nodes = np.zeros(2 * len(directions) + 1, NODE)
    rules = np.zeros(len(directions), FEATURE_RULES)
    rules["direction"] = directions
    splits = np.arange(0, 2 * len(directions), 2)
    nodes["left"][splits], nodes["feature"][splits] = splits + 1, np.arange(len(directions))
    leaves = np.array([*(splits + 1), 2 * len(directions)])
    return TreeNodes(nodes, np.zeros((len(nodes), 1), np.int32), rules), splits, leaves


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_leaves_are_put_in_order(directions: list[int], seed: int) -> None:
    tree, splits, leaves = chain_of_splits(directions)
    random = np.random.default_rng(seed)
    given_values = random.normal(size=len(leaves)).round(1)
    values, weights = given_values.copy(), random.random(len(leaves)) + 0.1
    put_in_order(tree, splits, leaves, values, weights, np.zeros((len(tree.nodes), 2), np.int64))
    for k, direction in enumerate(directions):
        assert all(direction * (values[k + 1 :] - values[k]) >= 0)
    in_order = all(all(d * (given_values[k + 1 :] - given_values[k]) >= 0) for k, d in enumerate(directions))
    assert np.array_equal(values, given_values) == in_order


def test_two_leaves_meet_at_their_mean() -> None:
    tree, splits, leaves = chain_of_splits([1])
    values = np.array([3.0, 1.0])
    put_in_order(tree, splits, leaves, values, np.array([1.0, 3.0]), np.zeros((3, 2), np.int64))
    assert values.tolist() == pytest.approx([1.5, 1.5])


@pytest.mark.parity
@pytest.mark.parametrize("method", METHODS)
def test_held_out_error_beside_lightgbm(method: str) -> None:
    """On targets that keep to the constraints."""
    lightgbm = pytest.importorskip("lightgbm")
    ours, theirs = [], []
    for seed in range(3):
        random = np.random.default_rng(seed)
        X, X_test = random.uniform(-1, 1, (8000, 4)), random.uniform(-1, 1, (8000, 4))
        truth = [(x[:, 0] + 1) * (x[:, 1] + 1) - np.exp(x[:, 2]) + np.sin(5 * x[:, 3]) for x in (X, X_test)]
        y = truth[0] + 0.5 * random.normal(size=len(X))
        parameters = TrainParameters(monotone_constraints=(1, 1, -1, 0), monotone_constraints_method=method)
        tables = [Table(tuple(NumericColumn(np.ascontiguousarray(c)) for c in x.T), len(x)) for x in (X, X_test)]
        model = train(parameters, BinningParameters(), Rows(tables[0], y), OBJECTIVES["regression"]).booster
        peer = lightgbm.LGBMRegressor(
            monotone_constraints=[1, 1, -1, 0], monotone_constraints_method=method, verbose=-1, n_jobs=1
        ).fit(X, y)
        ours.append(np.mean((model.raw_scores(tables[1])[0] - truth[1]) ** 2))
        theirs.append(np.mean((peer.predict(X_test) - truth[1]) ** 2))
    assert np.mean(ours) < 1.1 * np.mean(theirs)
