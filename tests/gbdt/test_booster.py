"""A model read back predicts the same bits; a file that holds no proper trees is refused before anything walks them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.model.model_file import ModelFileError, model_bytes, parse_model_bytes
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.training import train
from tests.reference import predict as naive

Arrays = dict[str, npt.NDArray[Any]]
N_ROWS = 400
CATEGORIES = ("a", "b", "c", "d", "e", "f")


def sample() -> Table:
    random = np.random.default_rng(0)
    gaps = np.where(random.random(N_ROWS) < 0.2, np.nan, random.normal(size=N_ROWS))
    codes = random.integers(-1, 6, N_ROWS).astype(np.int8)
    columns = (NumericColumn(random.normal(size=N_ROWS)), NumericColumn(gaps), CategoricalColumn(codes, CATEGORIES))
    return Table(columns, N_ROWS, ("first", "gaps", "letter"))


TABLE = sample()


def trained(n_classes: int) -> Booster:
    codes = TABLE.columns[2].codes
    signal = TABLE.columns[0].values + np.nan_to_num(TABLE.columns[1].values) + (codes % 3 == 1)
    target = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.float64)
    settings = ObjectiveSettings("multiclass" if n_classes > 2 else "binary", n_classes=n_classes)
    parameters = TrainParameters(n_estimators=4, num_leaves=9, min_data_per_group=5, cat_smooth=1.0)
    return train(parameters, BinningParameters(), Rows(TABLE, target), settings).booster


@pytest.fixture(scope="module", params=[2, 3])
def booster(request: pytest.FixtureRequest) -> Booster:
    return trained(request.param)


@pytest.fixture(scope="module")
def binary() -> Booster:
    return trained(2)


def rows_of(table: Table) -> list[list[float]]:
    codes = table.columns[2].codes
    letters = np.where(codes < 0, np.nan, codes)
    return np.stack([table.columns[0].values, table.columns[1].values, letters], axis=1).tolist()


def test_predictions_are_those_of_the_naive_walk(booster: Booster) -> None:
    base = booster.base_scores.tolist()
    expected = [naive.raw_scores(booster.trees, row, base, 0, len(booster.trees)) for row in rows_of(TABLE)]
    assert booster.raw_scores(TABLE).tobytes() == np.array(expected).T.copy().tobytes()
    leaves = [[naive.leaf_of(tree, row) for tree in booster.trees] for row in rows_of(TABLE)]
    np.testing.assert_array_equal(booster.leaf_indices(TABLE), leaves)
    assert any(tree.categorical.any() for tree in booster.trees)


def test_a_model_read_back_is_the_same_to_the_last_bit(booster: Booster) -> None:
    named = replace(booster, metadata={"estimator": "mine", "classes": [1, "x", None]})
    again = Booster.from_bytes(named.to_bytes())
    assert again.to_bytes() == named.to_bytes()
    assert again.raw_scores(TABLE).tobytes() == booster.raw_scores(TABLE).tobytes()
    assert again.metadata == named.metadata
    assert (again.feature_names, again.categories) == (booster.feature_names, booster.categories)
    assert (again.objective, again.n_features, again.n_outputs) == (booster.objective, 3, booster.n_outputs)


def test_a_model_without_trees_can_be_kept(booster: Booster) -> None:
    again = Booster.from_bytes(booster.first(0).to_bytes())
    assert again.n_iterations == 0
    expected = np.repeat(booster.base_scores[:, None], N_ROWS, axis=1)
    np.testing.assert_array_equal(again.raw_scores(TABLE), expected)


def test_a_pickled_model_carries_no_forest(booster: Booster) -> None:
    before = len(pickle.dumps(replace(booster)))
    booster.raw_scores(TABLE)
    assert len(pickle.dumps(booster)) == before
    again = pickle.loads(pickle.dumps(booster))
    assert again.raw_scores(TABLE).tobytes() == booster.raw_scores(TABLE).tobytes()


def test_stages_are_the_models_of_fewer_iterations(booster: Booster) -> None:
    stages = list(booster.staged_raw_scores(TABLE))
    assert len(stages) == booster.n_iterations == 4
    for number, scores in enumerate(stages, start=1):
        assert scores.tobytes() == booster.raw_scores(TABLE, n_iterations=number).tobytes()
        assert scores.tobytes() == booster.first(number).raw_scores(TABLE).tobytes()


def test_importances_count_splits_and_add_up_gains(booster: Booster) -> None:
    splits, gains = booster.feature_importance("split"), booster.feature_importance("gain")
    for feature in range(3):
        own = [(tree.gain[node], 1) for tree in booster.trees for node in np.flatnonzero(tree.feature == feature)]
        assert splits[feature] == len(own)
        assert gains[feature] == pytest.approx(sum(gain for gain, _ in own))
    assert splits.min() > 0
    assert booster.first(0).feature_importance("gain").tolist() == [0.0, 0.0, 0.0]


def with_letters(codes: list[int], categories: tuple[str, ...]) -> Table:
    n_rows = len(codes)
    numbers = NumericColumn(np.zeros(n_rows))
    return Table((numbers, numbers, CategoricalColumn(np.array(codes, np.int8), categories)), n_rows, TABLE.names)


def test_categories_are_renumbered_as_in_training(binary: Booster) -> None:
    encoded = binary.columns.encode(with_letters([0, 1, 2, -1], ("f", "a", "c")), "error")
    column = encoded.columns[2]
    assert column.codes.tolist() == [5, 0, 2, -1]
    assert column.categories == CATEGORIES
    straight = binary.raw_scores(with_letters([5, 0, 2, -1], CATEGORIES))
    assert binary.raw_scores(encoded).tobytes() == straight.tobytes()


def test_categories_that_are_the_same_are_not_copied(binary: Booster) -> None:
    assert binary.columns.encode(TABLE, "error").columns[2] is TABLE.columns[2]


def test_unknown_categories_are_missing_or_an_error(binary: Booster) -> None:
    table = with_letters([0, 1, 2, 0], ("new", "b", "newer"))
    assert binary.columns.encode(table, "missing").columns[2].codes.tolist() == [-1, 1, -1, -1]
    with pytest.raises(ValueError, match=r"'letter'.*'new'"):
        binary.columns.encode(table, "error")
    unused = with_letters([1, 1], ("new", "b"))
    assert binary.columns.encode(unused, "error").columns[2].codes.tolist() == [1, 1]


def test_numbers_where_there_were_categories_are_refused(binary: Booster) -> None:
    number = NumericColumn(np.zeros(2))
    with pytest.raises(TypeError, match="'letter'"):
        binary.columns.encode(Table((number, number, number), 2, TABLE.names), "missing")


def test_categories_where_there_were_numbers_are_refused(binary: Booster) -> None:
    letter = CategoricalColumn(np.zeros(2, np.int8), CATEGORIES)
    table = binary.columns.encode(Table((letter, letter, letter), 2, TABLE.names), "missing")
    with pytest.raises(TypeError, match="'first'"):
        binary.raw_scores(table)


def test_too_few_columns_are_refused(binary: Booster) -> None:
    table = Table(TABLE.columns[:2], N_ROWS)
    with pytest.raises(ValueError, match=r"2 columns.*3"):
        binary.raw_scores(table)


def put(name: str, position: int, value: float) -> Callable[[dict[str, Any], Arrays], None]:
    def change(header: dict[str, Any], arrays: Arrays) -> None:
        arrays[name][position] = value

    return change


def swap(name: str, make: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[dict[str, Any], Arrays], None]:
    def change(header: dict[str, Any], arrays: Arrays) -> None:
        arrays[name] = make(arrays[name])

    return change


def say(name: str, value: Any) -> Callable[[dict[str, Any], Arrays], None]:
    def change(header: dict[str, Any], arrays: Arrays) -> None:
        header[name] = value

    return change


def all_categorical(header: dict[str, Any], arrays: Arrays) -> None:
    arrays["categorical"][:] = 1


def none_categorical(header: dict[str, Any], arrays: Arrays) -> None:
    arrays["categorical"][:] = 0


def loop(header: dict[str, Any], arrays: Arrays) -> None:
    """Every node and leaf of the first tree has one parent, but all nodes below the root form a circle."""
    n_nodes = int(arrays["tree_nodes"][0])
    below = np.arange(1, n_nodes)
    arrays["left"][:n_nodes] = [~0, *(below % (n_nodes - 1) + 1)]
    arrays["right"][:n_nodes] = [~1, *~(below + 1)]


def wrapping_sizes(header: dict[str, Any], arrays: Arrays) -> None:
    """Sizes of trees that add up to the right number only because int64 wraps around."""
    sizes = arrays["tree_nodes"].astype(np.int64)
    sizes[0] += 2**62
    sizes[1] += 2**62
    sizes[2] += 2**62
    sizes[3] += 2**62
    arrays["tree_nodes"] = sizes


HOSTILE = {
    "root is its own child": put("left", 0, 0),
    "child that does not exist": put("right", 0, 10_000),
    "leaf that does not exist": put("right", -1, -10_000),
    "loop": loop,
    "two parents": put("left", 0, 2),
    "negative feature": put("feature", 0, -1),
    "feature that does not exist": put("feature", 0, 3),
    "negative category": put("categories", 0, -1),
    "category that does not exist": put("categories", 0, len(CATEGORIES)),
    "category far away": put("categories", 0, 70_000),
    "numbers split by categories": all_categorical,
    "categories split by thresholds": none_categorical,
    "a flag that is neither": put("missing_left", 0, 7),
    "another flag that is neither": put("categorical", 0, 7),
    "negative size": put("tree_nodes", 0, -1),
    "wrong size": put("tree_nodes", 0, 3),
    "wrapping sizes": wrapping_sizes,
    "one tree fewer than sizes": swap("tree_nodes", lambda a: a[:-1]),
    "short array": swap("threshold", lambda a: a[:-1]),
    "long array": swap("leaf_value", lambda a: np.append(a, 0.0)),
    "two dimensions": swap("leaf_value", lambda a: a[:, None]),
    "two dimensions of features": swap("feature", lambda a: np.stack((a, a), axis=1)),
    "features in fractions": swap("feature", lambda a: a + 0.5),
    "children in fractions": swap("left", lambda a: a.astype(np.float64)),
    "categories in fractions": swap("categories", lambda a: a + 0.5),
    "leaf values that are flags": swap("leaf_value", lambda a: a > 0),
    "base scores that are flags": swap("base_scores", lambda a: a > 0),
    "no base scores": swap("base_scores", lambda a: a[:0]),
    "two-dimensional base scores": swap("base_scores", lambda a: a[None, :]),
    "more outputs than trees": swap("base_scores", lambda a: np.zeros(3)),
    "negative category counts": put("category_start", 0, -1),
    "no features": say("n_features", 0),
    "fewer features": say("n_features", 2),
    "features in words": say("n_features", "many"),
    "names of other features": say("feature_names", ["first"]),
    "categories of other features": say("categories", [None, None]),
    "categories that are numbers": say("categories", [None, None, 6]),
    "categories that are not values": say("categories", [None, None, [{}] * 6]),
    "no list of categories": say("categories", None),
    "metadata that is no mapping": say("metadata", 5),
    "averages that are neither": say("averages", 1),
    "rates that are neither": say("changed_rate", "yes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_without_proper_trees_is_refused(binary: Booster, kind: str) -> None:
    header, arrays = parse_model_bytes(binary.to_bytes())
    HOSTILE[kind](header, arrays)
    with pytest.raises(ModelFileError):
        Booster.from_bytes(model_bytes(header, arrays))


@pytest.mark.parametrize(
    "name",
    [
        "feature",
        "threshold",
        "left",
        "right",
        "categories",
        "category_start",
        "leaf_value",
        "tree_nodes",
        "base_scores",
    ],
)
def test_a_file_without_one_of_its_arrays_is_refused(binary: Booster, name: str) -> None:
    header, arrays = parse_model_bytes(binary.to_bytes())
    del arrays[name]
    with pytest.raises(ModelFileError, match=name):
        Booster.from_bytes(model_bytes(header, arrays))


@pytest.mark.parametrize("name", ["objective", "n_features", "feature_names", "categories", "metadata"])
def test_a_file_without_one_of_its_entries_is_refused(binary: Booster, name: str) -> None:
    header, arrays = parse_model_bytes(binary.to_bytes())
    del header[name]
    with pytest.raises(ModelFileError, match=name):
        Booster.from_bytes(model_bytes(header, arrays))


def test_whatever_is_done_to_children_a_model_that_loads_can_be_walked(binary: Booster) -> None:
    random = np.random.default_rng(1)
    content = binary.to_bytes()
    for _ in range(300):
        header, arrays = parse_model_bytes(content)
        for name in random.choice(["left", "right", "feature", "tree_nodes", "categories", "category_start"], 2):
            values = arrays[name]
            values[random.integers(len(values))] = random.integers(-12, 12)
        try:
            model = Booster.from_bytes(model_bytes(header, arrays))
        except ModelFileError:
            continue
        scores = model.raw_scores(TABLE)
        expected = [
            naive.raw_scores(model.trees, row, model.base_scores, 0, len(model.trees)) for row in rows_of(TABLE)[:20]
        ]
        np.testing.assert_array_equal(scores[0, :20], np.array(expected)[:, 0])
