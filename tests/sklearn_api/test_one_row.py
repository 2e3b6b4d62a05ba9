"""`one_row` gives single rows the bits of `predict` and `predict_proba`, whatever the row is made of."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.gbdt.model import one_row as one_row_module

N_ROWS = 300
RANDOM = np.random.default_rng(8)
COLOURS = ("blue", "green", "red", "yellow")
FRAME = pd.DataFrame(
    {
        "size": np.where(RANDOM.random(N_ROWS) < 0.2, np.nan, RANDOM.normal(size=N_ROWS)),
        "colour": RANDOM.choice([*COLOURS, None], N_ROWS),
        "count": RANDOM.integers(0, 9, N_ROWS),
        "level": pd.Categorical(RANDOM.choice(["low", "mid", "high"], N_ROWS), ["low", "mid", "high"], ordered=True),
        "weight": RANDOM.normal(size=N_ROWS).astype(np.float32),
        "shop": RANDOM.choice([3, 17, 40], N_ROWS),
    }
)
SIGNAL = (
    FRAME["size"].fillna(2.0)
    + 2.0 * FRAME["colour"].isin(["red", "blue"])
    - 0.3 * FRAME["count"]
    + (FRAME["level"] == "mid")
    + FRAME["weight"] * (FRAME["shop"] == 17)
).to_numpy(np.float64)
SETTINGS: dict[str, Any] = {
    "n_estimators": 12,
    "min_child_samples": 5,
    "min_data_per_group": 5,
    "cat_smooth": 1.0,
    "categorical_feature": ["shop"],
}


def models() -> dict[str, Any]:
    three = np.digitize(SIGNAL, [0.0, 1.5])
    held_out = slice(200, None)
    stopping = {**SETTINGS, "n_estimators": 200, "early_stopping_rounds": 2}
    noise = RANDOM.normal(size=N_ROWS)
    return {
        "two classes": DMLGBMClassifier(**SETTINGS).fit(FRAME, np.where(SIGNAL > 1, "yes", "no")),
        "three classes": DMLGBMClassifier(**SETTINGS).fit(FRAME, three),
        "regression": DMLGBMRegressor(**SETTINGS).fit(FRAME, SIGNAL),
        "rates": DMLGBMRegressor(objective="poisson", **SETTINGS).fit(FRAME, np.floor(np.abs(SIGNAL))),
        "shares": DMLGBMRegressor(objective="cross_entropy", **SETTINGS).fit(FRAME, np.clip(SIGNAL, 0.0, 1.0)),
        "one against all": DMLGBMClassifier(objective="ova", **SETTINGS).fit(FRAME, three),
        "ranking": DMLGBMRanker(**SETTINGS).fit(FRAME, three, group=[100, 200]),
        "stopped early": DMLGBMRegressor(**stopping).fit(
            FRAME, SIGNAL + noise, eval_set=(FRAME[held_out], (SIGNAL + noise[::-1])[held_out])
        ),
    }


MODELS = models()


def predicted(model: Any, X: Any) -> np.ndarray:
    return np.ascontiguousarray(model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X))


def same_bits(left: Any, right: Any) -> bool:
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.to_dict("records")


@pytest.mark.parametrize("kind", MODELS)
def test_every_form_of_a_row_gets_the_bits_of_a_frame_of_one_row(kind: str) -> None:
    model = MODELS[kind]
    predict_row, rows = model.one_row(), rows_of(FRAME)
    whole = predicted(model, FRAME)
    for number in range(0, N_ROWS, 7):
        row = rows[number]
        expected = predicted(model, FRAME.iloc[[number]])[0]
        assert same_bits(expected, whole[number])
        values = list(row.values())
        backwards = dict(reversed(row.items()))
        series, array = pd.Series(row, dtype=object), np.array(values, object)
        for form in (row, backwards, {**row, "unused": "x"}, values, tuple(values), series, array):
            assert same_bits(predict_row(form), expected)


@pytest.mark.parametrize("kind", MODELS)
def test_results_are_numbers_or_one_probability_for_each_class(kind: str) -> None:
    model = MODELS[kind]
    result = model.one_row()(rows_of(FRAME)[0])
    if hasattr(model, "classes_"):
        assert result.shape == (len(model.classes_),)
        assert result.sum() == pytest.approx(1.0)
    else:
        assert type(result) is float


@pytest.mark.parametrize("kind", MODELS)
def test_pickled_models_have_the_same_function(kind: str) -> None:
    model = MODELS[kind]
    again = pickle.loads(pickle.dumps(model)).one_row()
    for row in rows_of(FRAME)[:20]:
        assert same_bits(again(row), model.one_row()(row))


def test_early_stopping_leaves_trees_out() -> None:
    model = MODELS["stopped early"]
    assert model.best_iteration_ < model.n_iter_
    row = FRAME.iloc[[3]]
    assert model.one_row()(rows_of(row)[0]) == model.predict(row)[0]
    assert model.predict(row)[0] != model.predict(row, num_iteration=model.n_iter_)[0]


def test_scores_start_where_the_model_says() -> None:
    model = pickle.loads(pickle.dumps(MODELS["three classes"]))
    before = model.one_row()(rows_of(FRAME)[0])
    model.booster_.base_scores[:] = [0.25, -3.0, 1e-3]
    after = model.one_row()(rows_of(FRAME)[0])
    assert same_bits(after, model.predict_proba(FRAME.iloc[[0]])[0])
    assert not same_bits(after, before)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, Decimal("NaN")])
@pytest.mark.parametrize("column", FRAME.columns)
def test_missing_values_are_missing_in_every_column(column: str, missing: Any) -> None:
    model = MODELS["regression"]
    frame = FRAME.iloc[:25].astype({"count": "float64", "shop": "float64"})
    rows = rows_of(frame)
    frame[column] = None if column in ("colour", "level") else np.nan
    expected = model.predict(frame)
    assert same_bits([model.one_row()({**row, column: missing}) for row in rows], expected)
    assert not same_bits(expected, model.predict(FRAME.iloc[:25]))


def test_unknown_categories_are_missing_or_an_error_as_the_model_says() -> None:
    row = rows_of(FRAME)[1]
    model = MODELS["two classes"]
    for column, value in (("colour", "violet"), ("level", "none"), ("shop", 18)):
        frame = FRAME.iloc[[1]].astype({"level": "str"})
        frame[column] = [value]
        assert same_bits(model.one_row()({**row, column: value}), model.predict_proba(frame)[0])
        strict = pickle.loads(pickle.dumps(model)).set_params(handle_unknown="error")
        with pytest.raises(ValueError, match=f"column '{column}' has the category {value!r}, which training did not"):
            strict.one_row()({**row, column: value})


def test_categories_beyond_those_that_are_told_apart_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows_of(FRAME)[1]
    model = MODELS["regression"]
    monkeypatch.setattr(one_row_module, "MAX_CATEGORIES", 2)
    predict_row = model.one_row()
    assert predict_row({**row, "colour": "red"}) == predict_row({**row, "colour": None})
    assert predict_row({**row, "colour": "blue"}) != predict_row({**row, "colour": None})


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.bool_, ">f8"])
def test_arrays_of_any_numbers_are_read(dtype: Any) -> None:
    X = RANDOM.integers(0, 2, (200, 5)) + (0.0 if np.dtype(dtype).kind in "ib" else RANDOM.normal(size=(200, 5)))
    X = X.astype(dtype)
    model = DMLGBMRegressor(n_estimators=5, min_child_samples=5).fit(X, X.astype(np.float64).sum(axis=1))
    assert same_bits([model.one_row()(row) for row in X], model.predict(X))
    masked = np.ma.masked_array(X, mask=RANDOM.random(X.shape) < 0.3)
    assert same_bits([model.one_row()(row) for row in masked], model.predict(masked))


@pytest.mark.parametrize("n_columns", [1, 2])
@pytest.mark.parametrize("text", [True, False])
def test_tables_of_one_or_two_columns(n_columns: int, text: bool) -> None:
    values = np.where(RANDOM.random((80, n_columns)) < 0.5, "a", "b") if text else RANDOM.normal(size=(80, n_columns))
    frame = pd.DataFrame(values, columns=[f"column {k}" for k in range(n_columns)])
    target = (frame.iloc[:, -1] == "a") * 1.0 if text else frame.iloc[:, -1]
    model = DMLGBMRegressor(n_estimators=3, min_child_samples=5).fit(frame, target)
    assert len(set(model.predict(frame))) > 1
    assert same_bits([model.one_row()(row) for row in rows_of(frame)], model.predict(frame))
    assert same_bits([model.one_row()(row) for row in frame.to_numpy()], model.predict(frame))


def test_dates_are_numbers() -> None:
    days = pd.date_range("2020-01-01", periods=120, unit="us").to_series(index=range(120))
    frame = pd.DataFrame({"day": days, "number": np.arange(120) % 7})
    model = DMLGBMRegressor(n_estimators=5, min_child_samples=5).fit(frame, np.arange(120.0))
    for number in (0, 17, 119):
        expected = model.predict(frame.iloc[[number]])[0]
        assert model.one_row()({"day": days[number], "number": number % 7}) == expected
        assert model.one_row()((days[number].to_pydatetime(), number % 7)) == expected
    assert model.one_row()({"day": datetime(1970, 1, 1), "number": 0}) == model.one_row()((0, 0))


def test_errors_name_the_column_and_the_numbers() -> None:
    predict_row, row = MODELS["regression"].one_row(), rows_of(FRAME)[0]
    with pytest.raises(KeyError, match="the row has no value for the column 'level'"):
        predict_row({name: value for name, value in row.items() if name != "level"})
    with pytest.raises(KeyError, match="the row has no value for the column 'count'"):
        predict_row({name: value for name, value in row.items() if name != "count"})
    with pytest.raises(ValueError, match="the row has 5 values, but the model was fitted on 6 columns"):
        predict_row(list(row.values())[1:])
    with pytest.raises(ValueError, match="the row has 1 values, but the model was fitted on 6 columns"):
        predict_row(np.zeros((1, 6)))
    with pytest.raises(ValueError, match="column 'size' of the row holds text or categories, but DMLGBMRegressor"):
        predict_row({**row, "size": "12"})
    with pytest.raises(TypeError, match="column 'count' of the row holds a list"):
        predict_row({**row, "count": [1]})
    with pytest.raises(TypeError, match="column 'colour' held text when the model was trained, but now holds numbers"):
        predict_row({**row, "colour": 5})
    with pytest.raises(TypeError, match="column 'shop' held numbers when the model was trained, but now holds text"):
        predict_row({**row, "shop": "17"})
    with pytest.raises(ValueError, match=r"column 'shop' of the row is to be categorical but holds 3\.5"):
        predict_row({**row, "shop": 3.5})
    unnamed = DMLGBMRegressor(n_estimators=1).fit(np.zeros((50, 2)), np.zeros(50))
    with pytest.raises(ValueError, match="the model was fitted without column names"):
        unnamed.one_row()({"a": 1, "b": 2})


@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker])
def test_a_model_must_be_fitted_first(kind: Any) -> None:
    with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted yet"):
        kind().one_row()


def test_a_later_fit_does_not_change_the_function() -> None:
    model = DMLGBMRegressor(**SETTINGS).fit(FRAME, SIGNAL)
    predict_row, row = model.one_row(), rows_of(FRAME)[0]
    before = predict_row(row)
    model.fit(FRAME, -SIGNAL)
    assert predict_row(row) == before != model.one_row()(row)


def test_threads_may_share_the_function() -> None:
    model = MODELS["three classes"]
    predict_row, rows = model.one_row(), rows_of(FRAME) * 5
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(predict_row, rows))
    assert same_bits(together[:N_ROWS], model.predict_proba(FRAME))
    assert same_bits(together, [predict_row(row) for row in rows])
