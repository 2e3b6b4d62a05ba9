"""What `fit` warns of: data and settings that give less than whoever wrote them wants, once a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmlgbm
from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.sklearn_api.fit_warnings import text_kind

RANDOM = np.random.default_rng(1)
N_ROWS = 200
NUMBER = RANDOM.normal(size=N_ROWS)
SMALL = {"n_estimators": 2, "num_leaves": 4}


def warnings_of(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2024-01-31", "2024-02-01"], "dates"),
        (["2024-01-31 12:00:00", "2024-02-01T12:00Z", "2024-02-01T12:00:00.25+01:00"], "dates"),
        (["$1.23", "$17", "-$3.5"], "numbers"),
        (["12.3 %", "7%", "100 %"], "numbers"),
        (["1", "2.5", "-3e5", "1,234,567"], "numbers"),
        (["1,5", "3,25 €"], "numbers"),
        ([*map(str, range(99)), "unknown"], "numbers"),
        (["paris", "rome"], None),
        (["01234", "99999"], None),
        (["1a", "2b"], None),
        (["1", "2", "x"], None),
        (["-", "%", "."], None),
        ([], None),
        ([1, 2], None),
    ],
)
def test_dates_and_numbers_are_recognised_in_text(texts: Any, kind: str | None) -> None:
    found = text_kind(texts)
    assert (None if found is None else found[0]) == kind


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2024-01-31", "2024-02-01"], "The column 'text' of X holds dates as text, such as '2024-01-31'.*to_datetime"),
        (["$1.23", "$4.56"], r"The column 'text' of X holds numbers as text, such as '\$1.23'.*to_numeric"),
    ],
)
@pytest.mark.parametrize("make", ["pandas", "polars", "arrow", "array"])
def test_dates_and_numbers_as_text_name_column_and_remedy_once(make: str, texts: list[str], message: str) -> None:
    frame = pd.DataFrame({"number": NUMBER, "text": np.resize(texts, N_ROWS)})
    X: Any = frame
    if make == "polars":
        X = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    elif make == "arrow":
        X = pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)
    elif make == "array":
        X, message = frame.to_numpy(dtype=object), message.replace("'text'", "1")
    with pytest.warns(UserWarning, match=message) as caught:
        DMLGBMRegressor(**SMALL).fit(X, NUMBER, eval_set=[(X, NUMBER)])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    model = DMLGBMRegressor(**SMALL)
    with pytest.warns(UserWarning, match=message):
        prepared = model.prepare(X, NUMBER)
    assert warnings_of(lambda: model.fit_prepared(prepared).predict(X)) == []


def test_text_that_is_meant_as_categories_is_not_warned_of() -> None:
    frame = pd.DataFrame({"number": NUMBER, "text": np.resize(["1", "2"], N_ROWS)})
    typed = frame.astype({"text": "category"})
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    tables = [typed, arrow.Table.from_pandas(typed, preserve_index=False)]
    tables += [polars.DataFrame(frame.to_dict("list")).with_columns(polars.col("text").cast(polars.Categorical))]
    for table in tables:
        assert warnings_of(lambda table=table: DMLGBMRegressor(**SMALL).fit(table, NUMBER)) == []
    listed = DMLGBMRegressor(**SMALL, categorical_feature=["text"])
    assert warnings_of(lambda: listed.fit(frame, NUMBER)) == []


def test_more_categories_than_can_be_told_apart_name_column_and_number() -> None:
    texts = [f"user {number:06}" for number in range(65_010)]
    frame = pd.DataFrame({"user": texts, "number": np.resize(NUMBER, len(texts))})
    found = warnings_of(lambda: DMLGBMRegressor(**SMALL).fit(frame, frame["number"]))
    assert len(found) == 1
    assert found[0].startswith(
        "The column 'user' of X has 65,010 categories: 65,000 are told apart, the other 10 count"
    )


def test_too_few_rows_for_a_split_are_named_once() -> None:
    X, y = NUMBER[:30, None], NUMBER[:30]
    found = warnings_of(lambda: DMLGBMRegressor().fit(X, y))
    assert len(found) == 1
    assert "min_child_samples=20 rows, but there are 30 rows to learn from" in found[0]
    assert warnings_of(lambda: DMLGBMRegressor(min_child_samples=5).fit(X, y)) == []
    model = DMLGBMClassifier()
    assert len(warnings_of(lambda: model.fit_prepared(model.prepare(X, y > 0)))) == 1


def test_metric_without_rows_to_evaluate_it_on_is_named_once() -> None:
    X = NUMBER[:, None]
    for call in (
        lambda: DMLGBMRegressor(**SMALL, eval_metric="l1").fit(X, NUMBER),
        lambda: DMLGBMRegressor(**SMALL).fit(X, NUMBER, eval_metric="l1"),
    ):
        (found,) = warnings_of(call)
        assert found.startswith("eval_metric has no effect without rows to evaluate it on: pass an eval_set")
    (found,) = warnings_of(lambda: dmlgbm.train({**SMALL, "metric": "l1"}, dmlgbm.Dataset(X, NUMBER)))
    assert found == "eval_metric has no effect without rows to evaluate it on: pass valid_sets."
    watched = DMLGBMRegressor(**SMALL, eval_metric="l1")
    assert warnings_of(lambda: watched.fit(X, NUMBER, eval_set=(X, NUMBER))) == []
    assert warnings_of(lambda: watched.set_params(early_stopping=True).fit(X, NUMBER)) == []
