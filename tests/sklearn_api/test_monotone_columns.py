"""Monotone constraints as users write them: by position, by name, as other libraries do; and what makes no sense."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, GridSearchCV, load_model
from dmlgbm.command_line.main import main

N_ROWS = 600
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RANDOM.normal(size=N_ROWS),
        "price": RANDOM.normal(size=N_ROWS),
        "town": pd.Categorical(RANDOM.choice(["a", "b"], N_ROWS)),
    }
)
TARGET = np.sin(3 * FRAME["age"]) + FRAME["price"] ** 2 + 0.1 * RANDOM.normal(size=N_ROWS)
NUMBERS = FRAME[["age", "price"]].to_numpy()
SMALL: dict[str, Any] = {"n_estimators": 8, "min_child_samples": 5, "n_jobs": 1}


def model_bytes(X: Any = FRAME, **parameters: Any) -> bytes:
    model = DMLGBMRegressor(**SMALL, **parameters).fit(X, TARGET)
    return model.booster_.to_bytes()


@functools.cache
def expected() -> bytes:
    return model_bytes(monotone_constraints=[1, -1, 0])


def test_a_constraint_changes_the_model() -> None:
    assert model_bytes() != expected()
    assert model_bytes(monotone_constraints=[-1, -1, 0]) != expected()


@pytest.mark.parametrize(
    "parameters",
    [
        {"monotone_constraints": {"age": 1, "price": -1}},
        {"monotone_constraints": {"price": np.int64(-1), "town": 0, "age": 1}},
        {"monotone_constraints": (1, -1, 0)},
        {"monotone_constraints": np.array([1, -1, 0])},
        {"monotone_constraints": "(1,-1,0)"},
        {"monotone_constraints": "1, -1, 0"},
        {"monotonic_cst": {"age": 1, "price": -1}},
        {"monotone_constraint": [1, -1, 0]},
        {"mc": [1, -1, 0], "mc_method": "basic"},
        {"monotonic_cst": [1, -1, 0], "monotone_constraining_method": "basic"},
    ],
    ids=str,
)
def test_all_ways_to_write_them_mean_the_same(parameters: dict[str, Any]) -> None:
    assert model_bytes(**parameters) == expected()


@pytest.mark.parametrize("nothing", [None, [0, 0, 0], {}, {"age": 0}, "(0,0,0)", []], ids=str)
def test_constraints_that_ask_for_nothing_change_nothing(nothing: Any) -> None:
    assert model_bytes(monotone_constraints=nothing) == model_bytes()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([1, -1], "monotone_constraints lists 2 columns, but X has 3"),
        ([1, 2, 0], "monotone_constraints has the entry 2"),
        ([1, True, 0], "monotone_constraints has the entry True"),
        ([1, 0.5, 0], "monotone_constraints has the entry 0.5"),
        ({"agee": 1}, r"monotone_constraints names 'agee'.*did you mean 'age'"),
        ({0: 1}, "monotone_constraints has the key 0"),
        (1, "monotone_constraints must be a list"),
        ([[1, -1, 0]], "monotone_constraints must be a list"),
        ("(1,x)", r"monotone_constraints='\(1,x\)'"),
        ([0, 0, 1], "monotone_constraints asks for an order in column 'town' of X"),
        ({"town": -1}, "monotone_constraints asks for an order in column 'town' of X"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_sentence(constraints: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        DMLGBMRegressor(**SMALL, monotone_constraints=constraints).fit(FRAME, TARGET)


def test_names_need_a_table_with_names() -> None:
    with pytest.raises(ValueError, match="monotone_constraints goes by column names, but X has none"):
        DMLGBMRegressor(**SMALL, monotone_constraints={"age": 1}).fit(NUMBERS, TARGET)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(
        ValueError, match="monotone_constraints_method='advanced' is not one of 'basic', 'intermediate'"
    ):
        DMLGBMRegressor(**SMALL, monotone_constraints_method="advanced").fit(FRAME, TARGET)


def test_classifier_and_ranker_take_them_too() -> None:
    constraints = {"age": 1, "price": -1}
    lower, upper = FRAME.assign(price=0.0), FRAME.assign(price=0.0)
    lower["age"], upper["age"] = -0.3, 0.4
    classifier = DMLGBMClassifier(**SMALL, monotone_constraints=constraints).fit(FRAME, TARGET > 0.5)
    assert np.all(classifier.predict_proba(upper)[:, 1] >= classifier.predict_proba(lower)[:, 1])
    grades = np.digitize(TARGET, [0.0, 1.0])
    ranker = DMLGBMRanker(**SMALL, monotone_constraints=constraints).fit(FRAME, grades, group=[20] * (N_ROWS // 20))
    assert np.all(ranker.predict(upper) >= ranker.predict(lower))


def test_they_are_kept_by_clones_pickles_and_model_files(tmp_path: Path) -> None:
    model = DMLGBMRegressor(**SMALL, monotone_constraints={"age": 1}).fit(FRAME, TARGET)
    model.save_model(tmp_path / "model.dml")
    for again in (clone(model), pickle.loads(pickle.dumps(model)), load_model(tmp_path / "model.dml")):
        assert again.monotone_constraints == {"age": 1}
        assert again.set_params(n_jobs=1).fit(FRAME, TARGET).booster_.to_bytes() == model.booster_.to_bytes()


def test_a_search_over_them_finds_the_model_of_a_fit() -> None:
    grid = {"monotone_constraints": [None, {"age": 1, "price": -1}], "n_estimators": [4, 8]}
    search = GridSearchCV(DMLGBMRegressor(**SMALL), grid, cv=2, n_jobs=1).fit(FRAME, TARGET)
    for share in (True, False):
        shared = GridSearchCV(DMLGBMRegressor(**SMALL), grid, cv=2, n_jobs=1, share_work=share).fit(FRAME, TARGET)
        assert shared.cv_results_["mean_test_score"].tolist() == search.cv_results_["mean_test_score"].tolist()
    assert len(set(search.cv_results_["mean_test_score"].tolist())) == 4


def test_the_command_line_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME.assign(target=TARGET).to_csv("data.csv", index=False)
    options = ["-p", "n_estimators=8", "-p", "min_child_samples=5", "-p", 'monotone_constraints={"age":1,"price":-1}']
    assert main(["train", "data.csv", "--target", "target", "--out", "model.dml", "--quiet", *options]) == 0
    model = load_model("model.dml")
    assert model.monotone_constraints == {"age": 1, "price": -1}
    by_age = model.predict(FRAME.assign(age=np.linspace(-2, 2, N_ROWS), price=0.0, town="a"))
    assert by_age[0] < by_age[-1]
    assert np.all(np.diff(by_age) >= 0)
