"""Interaction constraints as users write them, and what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, GridSearchCV, load_model

N_ROWS = 500
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal(size=(N_ROWS, 3)), columns=["age", "price", "size"]).assign(
    town=pd.Categorical(RANDOM.choice(["a", "b"], N_ROWS))
)
TARGET = FRAME["age"] * FRAME["price"] + FRAME["price"] * FRAME["size"] + FRAME["age"] * (FRAME["town"] == "a")
SMALL: dict[str, Any] = {"n_estimators": 6, "min_child_samples": 5, "n_jobs": 1}


def model_bytes(**parameters: Any) -> bytes:
    return DMLGBMRegressor(**SMALL, **parameters).fit(FRAME, TARGET).booster_.to_bytes()


GROUPS, PAIRS, SINGLES = [[0, 1], [2, 3]], "pairwise", "no_interactions"


def test_constraints_change_the_model() -> None:
    constrained = {model_bytes(interaction_constraints=each) for each in (GROUPS, PAIRS, SINGLES)}
    assert len(constrained | {model_bytes()}) == 4


@pytest.mark.parametrize(
    ("parameters", "same"),
    [
        ({"interaction_constraints": [["age", "price"], ["size", "town"]]}, GROUPS),
        ({"interaction_constraints": (("price", 0), {3, "size"})}, GROUPS),
        ({"interaction_constraints": np.array([[0, 1], [2, 3]])}, GROUPS),
        ({"interaction_constraints": "[0,1],[2,3]"}, GROUPS),
        ({"interaction_constraints": "[[0, 1], [2, 3]]"}, GROUPS),
        ({"interaction_cst": [[0, 1], [2, 3]]}, GROUPS),
        ({"interaction_cst": "pairwise"}, PAIRS),
        ({"interaction_constraints": [[a, b] for a in range(4) for b in range(a)]}, PAIRS),
        ({"interaction_constraints": [[0], [1], [2], [3]]}, SINGLES),
    ],
)
def test_all_ways_to_write_them_mean_the_same(parameters: dict[str, Any], same: Any) -> None:
    assert model_bytes(**parameters) == model_bytes(interaction_constraints=same)


@pytest.mark.parametrize("nothing", [None, [], [[0], [3, 2, 1, 0]]], ids=str)
def test_constraints_that_exclude_nothing_change_nothing(nothing: Any) -> None:
    assert model_bytes(interaction_constraints=nothing) == model_bytes()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([[0, 1], [2]], "interaction_constraints has no group with column 'town' of X"),
        ([[0, 1], [2, 4]], r"interaction_constraints lists position 4.*positions 0 to 3"),
        ([["age", "pryce"]], "interaction_constraints lists 'pryce'.*did you mean 'price'"),
        ([[0.5]], "interaction_constraints must list column names or positions, got 0.5"),
        ([[True]], "interaction_constraints must list column names or positions, got True"),
        (["age", "price"], "interaction_constraints has the entry 'age': each one must be a list"),
        ({"age": 1}, "interaction_constraints must be a list of lists"),
        (7, "interaction_constraints must be a list of lists"),
        ("pairs", "interaction_constraints='pairs' is neither 'pairwise' nor"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_sentence(constraints: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        DMLGBMRegressor(**SMALL, interaction_constraints=constraints).fit(FRAME, TARGET)


def test_names_need_a_table_with_names() -> None:
    with pytest.raises(ValueError, match="interaction_constraints lists 'age', but X has no string column names"):
        DMLGBMRegressor(**SMALL, interaction_constraints=[["age"]]).fit(np.zeros((9, 1)), np.zeros(9))


def test_scores_are_sums_of_functions_of_one_group() -> None:
    """Two rows that swap the columns of one group have the same scores together as before."""
    classifier = DMLGBMClassifier(**SMALL, interaction_constraints=[["age", "price"], ["size", "town"]])
    ranker = DMLGBMRanker(**SMALL, interaction_constraints=[["age", "price"], ["size", "town"]])
    classifier.fit(FRAME, TARGET > 0)
    ranker.fit(FRAME, np.digitize(TARGET, [-0.5, 0.5]), group=[20] * (N_ROWS // 20))
    other = FRAME[::-1].reset_index(drop=True)
    swapped = FRAME.assign(age=other["age"], price=other["price"])
    back = other.assign(age=FRAME["age"], price=FRAME["price"])
    for scores in (classifier.decision_function, ranker.predict):
        assert scores(FRAME) + scores(other) == pytest.approx(scores(swapped) + scores(back), abs=1e-12)


def test_they_are_kept_by_clones_and_model_files_and_searched(tmp_path: Path) -> None:
    model = DMLGBMRegressor(**SMALL, interaction_constraints=[["age", "price"], ["size", "town"]]).fit(FRAME, TARGET)
    model.save_model(tmp_path / "model.dml")
    for again in (clone(model), load_model(tmp_path / "model.dml")):
        assert again.set_params(n_jobs=1).fit(FRAME, TARGET).booster_.to_bytes() == model.booster_.to_bytes()
    grid = {"interaction_constraints": ["no_interactions", "pairwise", None], "n_estimators": [3, 6]}
    first, second = (
        GridSearchCV(DMLGBMRegressor(**SMALL), grid, cv=2, n_jobs=1, share_work=share).fit(FRAME, TARGET)
        for share in (True, False)
    )
    assert first.cv_results_["mean_test_score"].tolist() == second.cv_results_["mean_test_score"].tolist()
