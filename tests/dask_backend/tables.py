"""Small tables with everything that makes them awkward, whole and in partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

N_ROWS = 1201
# Empty partitions first, between and last, a single row, uneven sizes.
UNEVEN = (0, 0, 1, 400, 400, 401, 900, N_ROWS, N_ROWS)


def mixed_frame(n_rows: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, whole numbers, text with gaps, a category type, dates, float32 and a constant."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=n_rows)
    numbers[rng.random(n_rows) < 0.15] = np.nan
    text = rng.choice(np.array(["north", "east", "south", "west"], dtype=object), n_rows)
    text[rng.random(n_rows) < 0.1] = None
    return pd.DataFrame(
        {
            "number": numbers,
            "whole": rng.integers(0, 40, n_rows),
            "text": pd.Series(text, dtype=object),
            "kind": pd.Categorical(rng.choice(["c", "a", "b"], n_rows), categories=["c", "a", "b", "unused"]),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n_rows), unit="D"),
            "narrow": rng.normal(size=n_rows).astype(np.float32),
            "constant": np.ones(n_rows),
        }
    )


def signal(X: pd.DataFrame, seed: int = 1) -> np.ndarray:
    """Something that the columns of a mixed frame explain, with noise."""
    rng = np.random.default_rng(seed)
    days = (X["day"] - pd.Timestamp("2020-01-01")).dt.days.to_numpy()
    return (
        np.nan_to_num(X["number"].to_numpy(), nan=0.7)
        + (X["text"] == "north").to_numpy() * 1.5
        - (X["kind"] == "a").to_numpy()
        + np.sin(days / 90)
        + X["whole"].to_numpy() / 20
        + rng.normal(scale=0.3, size=len(X))
    )


def bounds_of(n_rows: int, partitions: int | Sequence[int]) -> list[int]:
    """Where partitions start and end: evenly, or as given."""
    if isinstance(partitions, int):
        return [n_rows * number // partitions for number in range(partitions + 1)]
    return [min(bound, n_rows) for bound in partitions]


def in_partitions(value: Any, partitions: int | Sequence[int]) -> Any:
    """A frame, series or array as a collection; frames and series with unknown divisions."""
    bounds = bounds_of(len(value), partitions)
    if isinstance(value, np.ndarray):
        blocks = [da.from_array(value[start:stop], chunks=-1) for start, stop in pairwise(bounds) if stop > start]
        return da.concatenate(blocks)
    parts = [dask.delayed(value.iloc[start:stop]) for start, stop in pairwise(bounds)]
    return dd.from_delayed(parts, meta=value.iloc[:0])
