"""Collections that do not fit the memory of the workers are trained on: raw partitions come and go one at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dmlgbm import DMLGBMRegressor
from dmlgbm.dask_backend.cluster import DaskCluster
from dmlgbm.sklearn_api.clusters import collection_rows

N_BLOCKS, N_ROWS, N_COLUMNS = 46, 25_000, 160  # 32 MB a block
LIMIT = 700 << 20  # of which a worker takes some 200 MB for itself


def block_of_rows(number: int) -> pd.DataFrame:
    """Generated where it is needed: nobody ever holds all blocks."""
    rng = np.random.default_rng(number)
    return pd.DataFrame(rng.random((N_ROWS, N_COLUMNS)), columns=[f"f{k}" for k in range(N_COLUMNS)])


def first_column(block: pd.DataFrame) -> pd.Series:
    return block["f0"] * 2.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_partitions_than_the_memory_of_all_workers_are_trained_on() -> None:
    assert N_BLOCKS * block_of_rows(0).memory_usage().sum() > 2 * LIMIT
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        before = set(client.run(os.getpid).values())
        X = dd.from_map(block_of_rows, range(N_BLOCKS), meta=block_of_rows(0).iloc[:0])
        model = DMLGBMRegressor(n_estimators=2, num_leaves=15, subsample_for_bin=20_000)
        model.fit(X, X.map_partitions(first_column))
        assert model.fit_report_.n_ranks == 2
        assert model.fit_report_.losses == []
        assert set(client.run(os.getpid).values()) == before, "no worker was killed for its memory"


def give_room(n_partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers seem to have room for so many of the small partitions, of two columns."""
    room = n_partitions * 100 * 2 * 8
    monkeypatch.setattr(DaskCluster, "memory", lambda self: room / collection_rows._SHARE_OF_MEMORY)


def small_partitions(notes: Path) -> tuple[dd.DataFrame, pd.DataFrame]:
    """A collection that notes each time that one of its partitions is computed, and its rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(900, 3)), columns=["a", "b", "c"])

    def noted(number: int) -> pd.DataFrame:
        with notes.open("a") as file:
            file.write(f"{number}\n")
        return rows.iloc[number * 100 : (number + 1) * 100]

    return dd.from_map(noted, range(9), meta=rows.iloc[:0]), rows


def times_computed(notes: Path) -> list[int]:
    return np.bincount([int(number) for number in notes.read_text().split()]).tolist()


def small_model(**parameters: Any) -> DMLGBMRegressor:
    return DMLGBMRegressor(n_estimators=3, num_leaves=7, subsample_for_bin=150, n_jobs=1, **parameters)


def test_partitions_that_fit_into_memory_are_computed_once(client: Client, tmp_path: Path) -> None:
    data, rows = small_partitions(tmp_path / "notes")
    model = small_model().fit(data[["a", "b"]], data["c"])
    assert times_computed(tmp_path / "notes") == [1] * 9
    assert (model.fit_report_.n_partitions, model.fit_report_.partitions_computed) == (9, 9)
    assert model.booster_.to_bytes() == small_model().fit(rows[["a", "b"]], rows["c"]).booster_.to_bytes()


def test_partitions_that_do_not_are_computed_twice_to_the_same_model(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_room(8, monkeypatch)
    data, rows = small_partitions(tmp_path / "notes")
    model = small_model().fit(data[["a", "b"]], data["c"])
    assert times_computed(tmp_path / "notes") == [2] * 9
    assert model.fit_report_.partitions_computed == 18
    assert "9, computed 18 times in all" in str(model.fit_report_)
    assert model.booster_.to_bytes() == small_model().fit(rows[["a", "b"]], rows["c"]).booster_.to_bytes()


def test_a_late_partition_does_not_keep_the_others_in_memory(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_room(2, monkeypatch)
    data, rows = small_partitions(tmp_path / "notes")

    def delayed_first(part: pd.DataFrame) -> pd.DataFrame:
        if part.index[0] == 0:
            time.sleep(1.0)
        return part

    late = data.map_partitions(delayed_first, meta=rows.iloc[:0])
    model = small_model().fit(late[["a", "b"]], late["c"])
    assert 18 <= model.fit_report_.partitions_computed < 27
    assert model.booster_.to_bytes() == small_model().fit(rows[["a", "b"]], rows["c"]).booster_.to_bytes()


def test_slow_partitions_that_are_computed_twice_are_warned_of(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_room(8, monkeypatch)
    monkeypatch.setattr(collection_rows, "_SECONDS_WORTH_A_WARNING", 0.0)
    data, _ = small_partitions(tmp_path / "notes")
    with pytest.warns(UserWarning, match="write what is slow to compute to Parquet") as warned:
        small_model().fit(data[["a", "b"]], data["c"])
    assert len([each for each in warned if "Parquet" in str(each.message)]) == 1
