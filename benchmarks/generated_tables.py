"""Generated tables over rows, columns, values, classes and zeros, kept in files once they are made.

A table is a pure function of its record and a seed. Its columns share hidden factors, as columns of real
tables do, and its target follows from bends, steps and products of some of them, so that trees have something to find
and accuracies can be compared.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.tasks import Task

Matrix = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Form = Literal["values", "counts", "one_hot"]

SEED = 20_261_118
TEST_SHARE = 0.2
N_FACTORS = 8
# Of the columns, at most so many make the target; with more of them a few dozen trees would learn next to nothing.
MOST_INFORMATIVE = 12
ONE_HOT_BLOCK = 10
KEPT_TABLES = Path(__file__).resolve().parent.parent / ".cache" / "benchmark_tables"


@dataclass(frozen=True)
class GeneratedTable:
    """What a table is like; `rows` are those to train on, and a fifth more are there to test.

    `values` is the most values a column has (0: continuous), `classes` the number of classes (0: regression), `zeros`
    the share of cells that are zero. Counts and one-hot columns have the values and zeros that their form brings.
    """

    rows: int
    columns: int
    classes: int = 2
    values: int = 0
    zeros: float = 0.0
    form: Form = "values"

    @property
    def task(self) -> Task:
        if self.classes == 0:
            return "regression"
        return "binary" if self.classes == 2 else "multiclass"


def read_table(table: GeneratedTable, seed: int = SEED) -> tuple[Matrix, Array]:
    """What `generate_table` makes, kept in a file: making some of them takes longer than fitting them."""
    folder = KEPT_TABLES / _digest(Path(__file__).read_text(encoding="utf-8"))
    file = folder / f"{_digest(f'{table} {seed}')}.npz"
    if not file.exists():
        _remove_tables_of_other_sources(folder)
        features, target = generate_table(table, seed)
        unfinished = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(unfinished, features=features.astype(np.float32), target=target)
        unfinished.replace(file)
    with np.load(file) as kept:
        return kept["features"].astype(np.float64), kept["target"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _remove_tables_of_other_sources(folder: Path) -> None:
    """Tables that an older state of this file has made are of no more use."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in KEPT_TABLES.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def generate_table(table: GeneratedTable, seed: int = SEED) -> tuple[Matrix, Array]:
    """Features and target, the rows to test after those to train on; features are numbers of single precision."""
    generator = np.random.default_rng(seed)
    n_rows = table.rows + int(table.rows * TEST_SHARE)
    factors = generator.normal(size=(n_rows, N_FACTORS))
    makers = {"values": _value_columns, "counts": _count_columns, "one_hot": _one_hot_columns}
    features = makers[table.form](table, factors, generator).astype(np.float32).astype(np.float64)
    return features, _target(table, features, generator)


def _hidden_columns(factors: Matrix, n_columns: int, generator: np.random.Generator) -> Matrix:
    """Columns of variance 1, two thirds of it from two factors that each shares with others."""
    weights = np.zeros((N_FACTORS, n_columns))
    for column in range(n_columns):
        weights[generator.choice(N_FACTORS, 2, replace=False), column] = generator.choice([-0.58, 0.58], 2)
    return factors @ weights + 0.57 * generator.normal(size=(len(factors), n_columns))


def _value_columns(table: GeneratedTable, factors: Matrix, generator: np.random.Generator) -> Matrix:
    """In turn symmetric and skewed; zero below the quantile that makes the share, and of few values by uneven cuts."""
    features = _hidden_columns(factors, table.columns, generator)
    skewed = slice(1, None, 2)
    features[:, skewed] = np.exp(features[:, skewed])
    for cells in features.T:
        rest = cells > np.quantile(cells, table.zeros) if table.zeros else np.ones(len(cells), bool)
        if table.values:
            cuts = np.quantile(cells[rest], np.linspace(0.0, 1.0, _n_values(table, generator) + 1)[1:-1] ** 1.5)
            cells[rest] = np.searchsorted(cuts, cells[rest]) + bool(table.zeros)
        cells[~rest] = 0.0
    return features


def _n_values(table: GeneratedTable, generator: np.random.Generator) -> int:
    """Of half of the columns the most there may be, of the others any number from two on."""
    return table.values if generator.random() < 0.5 else int(generator.integers(2, table.values + 1))


def _count_columns(table: GeneratedTable, factors: Matrix, generator: np.random.Generator) -> Matrix:
    """Counts of rare things: four cells of five are zero, most others below ten, a few above a hundred."""
    rates = np.exp(1.5 * _hidden_columns(factors, table.columns, generator) - 2.5)
    rates *= generator.gamma(2.0, 0.5, size=table.columns)
    return generator.poisson(rates).astype(np.float64)


def _one_hot_columns(table: GeneratedTable, factors: Matrix, generator: np.random.Generator) -> Matrix:
    """Blocks of ten columns with a single 1 in each, after as many continuous columns as a block has."""
    n_numeric = min(ONE_HOT_BLOCK, table.columns)
    parts = [_hidden_columns(factors, n_numeric, generator)]
    for start in range(n_numeric, table.columns, ONE_HOT_BLOCK):
        n_categories = min(ONE_HOT_BLOCK, table.columns - start)
        rarity = np.linspace(0.0, 3.0, n_categories)
        leaning = _hidden_columns(factors, n_categories, generator) + generator.gumbel(size=(len(factors), 1)) - rarity
        parts.append(np.eye(n_categories)[leaning.argmax(axis=1)])
    return np.concatenate(parts, axis=1)


def _target(table: GeneratedTable, features: Matrix, generator: np.random.Generator) -> Array:
    n_informative = min(MOST_INFORMATIVE, table.columns)
    chosen = features[:, generator.choice(table.columns, n_informative, replace=False)]
    standard = np.clip((chosen - chosen.mean(axis=0)) / (chosen.std(axis=0) + 1e-12), -3.0, 3.0)
    neighbours = np.roll(standard, 1, axis=1)
    patterns = np.concatenate([standard, np.sin(2.0 * standard), standard > 0.5, standard * neighbours], axis=1)
    n_outputs = max(table.classes, 1)
    scores = patterns @ generator.normal(size=(patterns.shape[1], n_outputs)) / np.sqrt(n_informative)
    if table.classes == 0:
        return scores[:, 0] + 0.5 * generator.normal(size=len(scores))
    return (2.0 * scores + generator.gumbel(size=scores.shape)).argmax(axis=1).astype(np.int32)
