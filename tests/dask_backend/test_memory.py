"""Collections that do not fit the memory of the workers are trained on: raw partitions come and go one at a time."""

from __future__ import annotations

import os

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dmlgbm import DMLGBMRegressor

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
