"""Collections as users make them: X, y and weights taken from one frame, however that is read, train as its rows do.

Dask reads several files at once where few columns of them are needed, so that collections of one frame may end up with
different partitions when each is optimised alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, DMLMLPClassifier, GridSearchCV

N_FILES = 6
WIDE = [f"wide{number}" for number in range(9)]


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n_rows = 120 * N_FILES
    columns = {name: rng.normal(size=n_rows) for name in WIDE}
    late = columns["wide0"] + 0.5 * columns["wide1"] > 0.3
    return pd.DataFrame(
        {
            **columns,
            "day": np.arange(n_rows) // 10,
            "weight": rng.integers(1, 4, n_rows).astype(np.float64),
            "score": rng.normal(size=n_rows),
            "late": late.astype(np.int64),
        }
    )


@pytest.fixture(scope="module")
def parquet(flights: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flights")
    dd.from_pandas(flights, npartitions=N_FILES).to_parquet(folder)
    return folder


@pytest.fixture(scope="module")
def csv(flights: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    for number in range(N_FILES):
        flights.iloc[number * 120 : (number + 1) * 120].to_csv(folder / f"{number}.csv", index=False)
    return str(folder / "*.csv")


def classifier() -> DMLGBMClassifier:
    return DMLGBMClassifier(n_estimators=4, num_leaves=7, min_child_samples=5, n_jobs=1)


def model_bytes(model: Any) -> bytes:
    return bytes(model.booster_.to_bytes())


def of_flights(X: Any, data: Any) -> bytes:
    return model_bytes(classifier().fit(X, data["late"], sample_weight=data["weight"]))


def read_slice(number: int, flights: pd.DataFrame) -> pd.DataFrame:
    return flights.iloc[number * 120 : (number + 1) * 120]


@pytest.mark.parametrize("filesystem", ["fsspec", "arrow"])
@pytest.mark.parametrize("columns", [WIDE[:1], WIDE[:2], WIDE], ids=["one", "two", "all"])
def test_columns_of_parquet_train_as_their_rows(parquet: Path, filesystem: str, columns: list[str]) -> None:
    data = dd.read_parquet(parquet, filesystem=filesystem)
    with dask.config.set(scheduler="synchronous"):
        rows = data.compute()
        assert of_flights(data[columns], data) == of_flights(rows[columns], rows)


def test_the_first_example_of_the_guide_trains_and_predicts(client: Client, parquet: Path) -> None:
    data = dd.read_parquet(parquet)
    X, y = data.drop(columns="late"), data["late"]
    model = classifier().fit(X, y)
    assert model.predict_proba(X).compute().shape == (120 * N_FILES, 2)
    assert model.score(X, y) > 0.9


def test_persisted_columns_train_as_their_rows(client: Client, parquet: Path, flights: pd.DataFrame) -> None:
    data = dd.read_parquet(parquet).persist()
    assert of_flights(data[WIDE], data) == of_flights(flights[WIDE], flights)


def _made(kind: str, parquet: Path, csv: str, flights: pd.DataFrame) -> Any:
    if kind == "csv":
        return dd.read_csv(csv)
    if kind == "map":
        return dd.from_map(read_slice, range(N_FILES), flights=flights, meta=flights.iloc[:0])
    data = dd.read_parquet(parquet)
    if kind == "fewer":
        return data.repartition(npartitions=4)
    if kind == "more":
        return data.repartition(npartitions=11)
    return data.assign(wide0=data["wide0"] + 0.0)


@pytest.mark.parametrize("kind", ["csv", "map", "fewer", "more", "assigned"])
def test_other_ways_to_read_train_as_their_rows(kind: str, parquet: Path, csv: str, flights: pd.DataFrame) -> None:
    data = _made(kind, parquet, csv, flights)
    with dask.config.set(scheduler="synchronous"):
        expected = of_flights(flights[WIDE[:3]], flights)
        assert of_flights(data[WIDE[:3]], data) == expected


@pytest.mark.parametrize("filesystem", ["fsspec", "arrow"])
def test_filtered_rows_train_as_themselves(parquet: Path, filesystem: str) -> None:
    data = dd.read_parquet(parquet, filesystem=filesystem)
    with dask.config.set(scheduler="synchronous"):
        kept = data.compute().query("day > 30")
        expected = of_flights(kept[WIDE[:2]], kept)
        rows = data[data["day"] > 30]
        assert of_flights(rows[WIDE[:2]], rows) == expected
        # The same rows, filtered column by column, and while the files are read.
        late, weight = data["late"][data["day"] > 30], data["weight"][data["day"] > 30]
        model = classifier().fit(data[WIDE[:2]][data["day"] > 30], late, sample_weight=weight)
        assert model_bytes(model) == expected
        read = dd.read_parquet(parquet, filesystem=filesystem, filters=[("day", ">", 30)])
        assert of_flights(read[WIDE[:2]], read) == expected


def test_columns_that_were_read_apart_train_as_their_rows(parquet: Path, flights: pd.DataFrame) -> None:
    X, late, weight = (dd.read_parquet(parquet, columns=columns) for columns in (WIDE, ["late"], ["weight"]))
    with dask.config.set(scheduler="synchronous"):
        model = classifier().fit(X, late["late"], sample_weight=weight["weight"])
    assert model_bytes(model) == of_flights(flights[WIDE], flights)


def as_arrays(data: Any) -> tuple[Any, Any, Any]:
    return data[WIDE].values, data["late"].values, data["weight"].values


def arrays_beside_a_frame(data: Any) -> tuple[Any, Any, Any]:
    return data[WIDE], data["late"].values, data["weight"].values


def local_beside_a_frame(data: Any) -> tuple[Any, Any, Any]:
    return data[WIDE], data["late"].compute(), data["weight"].compute().to_numpy()


@pytest.mark.parametrize("taken", [as_arrays, arrays_beside_a_frame, local_beside_a_frame])
def test_arrays_and_local_values_of_parquet_train_as_their_rows(
    taken: Callable[[Any], tuple[Any, Any, Any]], parquet: Path, flights: pd.DataFrame
) -> None:
    expected_X = flights[WIDE].to_numpy() if taken is as_arrays else flights[WIDE]
    with dask.config.set(scheduler="synchronous"):
        X, y, weight = taken(dd.read_parquet(parquet))
        model = classifier().fit(X, y, sample_weight=weight)
    assert model_bytes(model) == of_flights(expected_X, flights)


def test_arrays_of_other_lengths_are_refused(parquet: Path) -> None:
    data = dd.read_parquet(parquet)
    fewer = data[data["day"] > 30]["late"].values
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(ValueError, match="y has 410 values for 720 rows of X"),
    ):
        classifier().fit(data[WIDE].values, fewer)


def test_evaluation_sets_queries_and_start_scores_of_parquet_train_as_their_rows(
    parquet: Path, flights: pd.DataFrame
) -> None:
    def fitted(data: Any) -> bytes:
        X, y = data[WIDE[:2]], data["late"]
        model = DMLGBMRanker(n_estimators=4, num_leaves=7, min_child_samples=5, early_stopping=True, n_jobs=1)
        model.fit(
            X,
            y,
            qid=data["day"],
            init_score=data["score"],
            eval_set=[(X, y)],
            eval_qid=[data["day"]],
            eval_sample_weight=[data["weight"]],
        )
        return model_bytes(model)

    with dask.config.set(scheduler="synchronous"):
        assert fitted(dd.read_parquet(parquet)) == fitted(flights)


def test_files_are_read_once_for_all_columns(flights: pd.DataFrame, tmp_path: Path) -> None:
    def noted(number: int) -> pd.DataFrame:
        with (tmp_path / "reads").open("a") as file:
            file.write(f"{number}\n")
        return read_slice(number, flights)

    data = dd.from_map(noted, range(N_FILES), meta=flights.iloc[:0])
    with dask.config.set(scheduler="synchronous"):
        of_flights(data[WIDE], data)
    assert sorted((tmp_path / "reads").read_text().split()) == [str(number) for number in range(N_FILES)]


def test_networks_train_on_columns_of_parquet(client: Client, parquet: Path, flights: pd.DataFrame) -> None:
    data = dd.read_parquet(parquet)
    X, y = data[WIDE], data["late"]
    model = DMLMLPClassifier(hidden_layer_sizes=(4,), max_epochs=2, random_state=0).fit(X, y)
    predicted = model.predict(X).compute()
    assert (predicted.to_numpy() == model.predict(flights[WIDE])).all()


def test_searches_take_columns_of_parquet_in_pieces(
    parquet: Path, flights: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dd.read_parquet(parquet)
    grid = {"num_leaves": [3, 7]}

    def scores(X: Any, y: Any) -> list[float]:
        estimator = DMLGBMRegressor(n_estimators=3, n_jobs=1)
        search = GridSearchCV(estimator, grid, cv=2, refit=False, backend="local").fit(X, y)
        return list(search.cv_results_["mean_test_score"])

    expected = scores(flights[WIDE[:2]].to_numpy(), flights["late"])
    monkeypatch.setattr("dmlgbm.tuning.collections._SHARE_OF_MEMORY", 0.0)
    with dask.config.set(scheduler="synchronous"):
        assert scores(data[WIDE[:2]], data["late"]) == expected
