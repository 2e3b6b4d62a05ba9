"""Small tables with everything that makes them awkward, as Spark frames whose partitions are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

N_ROWS = 1201
# Empty partitions first and last, a single row, uneven sizes.
UNEVEN = (0, 0, 1, 400, 900, N_ROWS, N_ROWS)


def mixed_frame(n_rows: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, whole numbers with gaps, text with gaps, dates, float32 and a constant."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=n_rows)
    numbers[rng.random(n_rows) < 0.15] = np.nan
    text = rng.choice(np.array(["north", "east", "south", "west"], dtype=object), n_rows)
    text[rng.random(n_rows) < 0.1] = None
    whole = pd.array(rng.integers(0, 40, n_rows), dtype="Int64")
    whole[rng.random(n_rows) < 0.1] = pd.NA
    return pd.DataFrame(
        {
            "number": numbers,
            "whole": whole,
            "a text.column": pd.Series(text, dtype=object),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n_rows), unit="D"),
            "narrow": rng.normal(size=n_rows).astype(np.float32),
            "constant": np.ones(n_rows),
        }
    )


def signal(X: pd.DataFrame, seed: int = 1) -> np.ndarray:
    """Something that the columns of a mixed frame explain, with noise."""
    rng = np.random.default_rng(seed)
    return (
        np.nan_to_num(X["number"].to_numpy(), nan=0.7)
        + (X["a text.column"] == "north").to_numpy() * 1.5
        + X["whole"].fillna(20).to_numpy(float) / 20
        + rng.normal(scale=0.3, size=len(X))
    )


def on_spark(spark: Any, frame: pd.DataFrame, bounds: Sequence[int] | int) -> Any:
    """The rows in their order, with a partition between each two bounds."""
    import pyarrow as pa

    if isinstance(bounds, int):
        bounds = [len(frame) * number // bounds for number in range(bounds + 1)]
    schema = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).schema
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    pieces = [arrow.slice(start, stop - start) for start, stop in pairwise(bounds)]
    rows = spark.sparkContext.parallelize(list(range(len(pieces))), len(pieces))
    made = rows.flatMap(Piece([piece.to_pylist() for piece in pieces], [field.name for field in schema]))
    return spark.createDataFrame(made, schema)


class Piece:
    """The rows of a partition."""

    def __init__(self, pieces: list[list[dict[str, Any]]], names: list[str]) -> None:
        self._pieces = pieces
        self._names = names

    def __call__(self, number: int) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in self._names) for row in self._pieces[number]]
