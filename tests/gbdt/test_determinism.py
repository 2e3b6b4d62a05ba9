"""The same data and parameters give the same model file, byte for byte, whatever happens around the fit."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, Table
from dmlgbm.gbdt.growth.quantisation import quantise, rounding_of
from dmlgbm.gbdt.kernels.layout import PackedGradients
from dmlgbm.gbdt.kernels.quantise import pack_words
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.binary import Balance
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from dmlgbm.sklearn_api.tables import table_from

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
N_ROWS = 500
OBJECTIVES = {
    "regression": ObjectiveSettings("regression"),
    "regression_l1": ObjectiveSettings("regression_l1"),
    "binary": ObjectiveSettings("binary"),
    "multiclass": ObjectiveSettings("multiclass", n_classes=3),
    "poisson": ObjectiveSettings("poisson"),
    "tweedie": ObjectiveSettings("tweedie"),
    "mape": ObjectiveSettings("mape"),
    "fair": ObjectiveSettings("fair"),
    "expectile": ObjectiveSettings("expectile"),
    "focal": ObjectiveSettings("focal", n_classes=2, balance=Balance(is_unbalance=True)),
    "multiclassova": ObjectiveSettings("multiclassova", n_classes=3, balance=Balance(is_unbalance=True)),
    "lambdarank": ObjectiveSettings("lambdarank"),
    "rank_xendcg": ObjectiveSettings("rank_xendcg"),
}
EVERYTHING = {"subsample": 0.7, "subsample_freq": 2, "colsample_bytree": 0.8, "colsample_bynode": 0.6}


def columns_of(random: np.random.Generator, n_rows: int) -> dict[str, Column]:
    """Values that float32 holds exactly, with missing ones, exclusive columns, rare ones and categories."""
    columns: dict[str, Column] = {}
    for k in range(3):
        values = random.normal(size=n_rows).astype(np.float32).astype(np.float64)
        values[random.random(n_rows) < 0.1 * k] = np.nan
        columns[f"number {k}"] = NumericColumn(values)
    exclusive = np.eye(4)[random.integers(0, 4, n_rows)]
    columns |= {f"exclusive {k}": NumericColumn(exclusive[:, k]) for k in range(4)}
    for k in range(18):
        columns[f"rare {k}"] = NumericColumn(
            (random.random(n_rows) < 0.2) * random.integers(1, 4, n_rows).astype(float)
        )
    for name, n_categories in (("few", 3), ("many", 40)):
        codes = random.integers(-1, n_categories, n_rows).astype(np.int8)
        columns[name] = CategoricalColumn(codes, tuple(f"{k:02}" for k in range(n_categories)))
    return columns


def sample(n_rows: int = N_ROWS, only_numbers: bool = False) -> tuple[Table, FloatArray, FloatArray]:
    """A table, a signal and weights."""
    random = np.random.default_rng(0)
    columns = columns_of(random, n_rows)
    numbers = [column.values for column in columns.values() if isinstance(column, NumericColumn)]
    signal = np.nan_to_num(np.stack(numbers, axis=1)) @ random.normal(size=len(numbers))
    signal += np.where(columns["many"].codes % 5 == 1, 2.0, 0.0)
    if only_numbers:
        columns = {name: column for name, column in columns.items() if isinstance(column, NumericColumn)}
    return Table(tuple(columns.values()), n_rows, tuple(columns)), signal, random.uniform(0.5, 2.0, n_rows)


def target_for(objective: str, signal: FloatArray) -> FloatArray:
    if objective in ("binary", "focal"):
        return (signal > 0).astype(np.float64)
    if objective in ("multiclass", "multiclassova", "lambdarank", "rank_xendcg"):
        return np.digitize(signal, np.quantile(signal, [0.3, 0.6])).astype(np.float64)
    return np.floor(np.exp(0.3 * signal)) if objective in ("poisson", "tweedie") else signal


def fit(
    objective: str = "regression",
    table: Table | None = None,
    n_rows: int = N_ROWS,
    weighted: bool = True,
    initial_model: Booster | None = None,
    init_score: FloatArray | None = None,
    **changes: Any,
) -> Booster:
    own, signal, weight = sample(n_rows)
    options = {"n_estimators": 6, "num_leaves": 15, "min_child_samples": 4, "min_data_per_group": 10, "cat_smooth": 2.0}
    rows = Rows(
        table or own,
        target_for(objective, signal),
        weight if weighted else None,
        init_score,
        np.arange(0, n_rows + 1, 25) if objective in ("lambdarank", "rank_xendcg") else None,
    )
    return train(
        TrainParameters(**(options | EVERYTHING | changes)),
        BinningParameters(),
        rows,
        OBJECTIVES[objective],
        initial_model=initial_model,
    ).booster


@pytest.fixture
def threads_for_small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand even the smallest piece of work to other threads."""
    run_ranges = Workers.run_ranges

    def run_small_ranges(workers: Workers, task: Callable[[int, int], Any], n: int, smallest: int = 1) -> list[Any]:
        return run_ranges(workers, task, n, 1)

    monkeypatch.setattr(Workers, "run_ranges", run_small_ranges)
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    monkeypatch.setattr("dmlgbm.gbdt.data.row_binning._BLOCK_ROWS", 64)


@pytest.mark.usefixtures("threads_for_small_data")
@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("precision", ["auto", "fast", "exact"])
def test_any_number_of_threads(n_threads: int, objective: str, precision: str) -> None:
    alone = fit(objective, precision=precision)
    assert fit(objective, precision=precision, n_threads=n_threads).to_bytes() == alone.to_bytes()
    assert any(tree.n_leaves == 15 for tree in alone.trees)


@pytest.mark.usefixtures("threads_for_small_data")
@pytest.mark.parametrize("changes", [{"grow_policy": "depthwise"}, {"max_depth": 3}, {"subsample_freq": 0}])
def test_any_number_of_threads_with_other_shapes(changes: dict[str, Any]) -> None:
    for weighted in (False, True):
        models = {fit(n_threads=n, weighted=weighted, **changes).to_bytes() for n in (1, 2)}
        assert len(models) == 1


@pytest.mark.usefixtures("threads_for_small_data")
def test_trees_of_several_classes_at_once_and_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = fit("multiclass", n_threads=2).to_bytes()
    monkeypatch.setattr("dmlgbm.gbdt.boosting.local_run._MOST_HISTOGRAM_BYTES", 0)
    assert fit("multiclass", n_threads=2).to_bytes() == at_once


def test_two_threads_on_data_that_is_worth_it() -> None:
    """Large enough for rounds, shared histograms of the root and ranges of rows as they are by default."""
    models = {fit("binary", n_rows=70_000, n_estimators=2, n_threads=n).to_bytes() for n in (1, 2)}
    assert len(models) == 1


def test_any_layout_of_the_same_numbers() -> None:
    table, signal, _ = sample(only_numbers=True)
    numbers = np.stack([column.values for column in table.columns], axis=1)
    names = [f"column {k}" for k in range(numbers.shape[1])]
    strided = np.empty((N_ROWS, 2 * numbers.shape[1]))[:, ::2]
    strided[...] = numbers
    inputs = [
        np.ascontiguousarray(numbers),
        np.asfortranarray(numbers),
        numbers.astype(np.float32),
        np.asfortranarray(numbers.astype(np.float32)),
        strided,
        numbers.astype(">f8"),
        np.repeat(numbers, 2, axis=0)[::2],
        pd.DataFrame(numbers, columns=names),
        pd.DataFrame(numbers.astype(np.float32), columns=names),
        pd.DataFrame(numbers, columns=names).convert_dtypes(),
    ]
    models = set()
    for X in inputs:
        made = table_from(X)
        models.add(fit(table=Table(made.columns, made.n_rows)).to_bytes())
    assert len(models) == 1
    assert signal.std() > 0


def test_any_way_to_write_the_same_categories() -> None:
    table, _, _ = sample()
    frame = pd.DataFrame(
        {
            name: (
                pd.Categorical.from_codes(column.codes, column.categories)
                if isinstance(column, CategoricalColumn)
                else column.values
            )
            for name, column in zip(table.names, table.columns, strict=True)
        }
    )
    texts = frame.astype({"few": object, "many": object})
    assert {fit(table=table_from(X)).to_bytes() for X in (frame, texts)} == {fit(table=table).to_bytes()}


def digest() -> str:
    """Of models of every objective; called in another process."""
    models = b"".join(fit(objective, n_threads=2).to_bytes() for objective in OBJECTIVES)
    return hashlib.sha256(models).hexdigest()


@pytest.mark.processes
def test_another_process() -> None:
    code = "from tests.gbdt.test_determinism import digest; import sys; sys.stdout.write(digest())"
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=110
    )
    assert other.stdout == digest()


def test_fits_side_by_side_do_not_disturb_each_other() -> None:
    objectives = ["regression", "binary", "multiclass", "regression"]
    expected = [fit(objective).to_bytes() for objective in objectives]
    with ThreadPoolExecutor(2) as pool:
        for n_threads in (1, 2):
            side_by_side = pool.map(lambda objective, n=n_threads: fit(objective, n_threads=n).to_bytes(), objectives)
            assert list(side_by_side) == expected


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_five_iterations_and_five_more_are_ten(objective: str) -> None:
    first = Booster.from_bytes(fit(objective, n_estimators=5).to_bytes())
    continued = fit(objective, n_estimators=5, initial_model=first)
    assert continued.to_bytes() == fit(objective, n_estimators=10).to_bytes()
    assert continued.first(5).to_bytes() == first.to_bytes()


def test_five_iterations_and_five_more_are_ten_with_first_scores() -> None:
    init_score = np.random.default_rng(1).normal(size=(1, N_ROWS))
    first = fit(n_estimators=5, init_score=init_score)
    continued = fit(n_estimators=5, init_score=init_score, initial_model=first)
    assert continued.to_bytes() == fit(n_estimators=10, init_score=init_score).to_bytes()


def test_the_number_of_iterations_asked_for_changes_nothing_before() -> None:
    assert fit(n_estimators=9).first(4).to_bytes() == fit(n_estimators=4).to_bytes()


@pytest.mark.parametrize("precision", ["fast", "exact"])
@pytest.mark.parametrize("with_hessians", [False, True])
def test_rounding_depends_on_the_row_number_and_not_on_chunks_or_threads(precision: str, with_hessians: bool) -> None:
    random = np.random.default_rng(2)
    n_rows = 40_000
    gradients = random.normal(size=n_rows).astype(np.float32)
    hessians = random.random(n_rows).astype(np.float32) if with_hessians else gradients[:0]
    made = []
    for n_threads in (1, 2, 3):
        with Workers(n_threads) as workers:
            options = {"precision": precision, "segments": [Segment(0, n_rows, 7)], "seed": 5, "tree": 3}
            made.append(quantise(gradients, hessians, workers=workers, **options))
    whole = made[0]
    assert {one.words.tobytes() for one in made} == {whole.words.tobytes()}
    words = np.empty_like(whole.words)
    for start, stop in ((0, 1), (1, 9_999), (9_999, n_rows)):
        own = np.ascontiguousarray(gradients[start:stop])
        own_hessians = np.ascontiguousarray(hessians[start:stop])
        part = np.empty((len(words), stop - start), np.int64)
        rounding = rounding_of(whole.gradient_scale, whole.hessian_scale, precision != "exact", seed=5, tree=3)
        packed = PackedGradients(whole.packing, part)
        pack_words(own, own_hessians, 0, stop - start, 7 + start, rounding, packed)
        words[:, start:stop] = part
    np.testing.assert_array_equal(words, whole.words)


def test_rounding_differs_between_trees_and_seeds() -> None:
    gradients = np.random.default_rng(3).normal(size=1000).astype(np.float32)
    words = set()
    with Workers(1) as workers:
        for seed, tree in ((0, 0), (0, 1), (1, 0)):
            made = quantise(
                gradients,
                gradients**2,
                precision="fast",
                segments=whole_table(1000),
                seed=seed,
                tree=tree,
                workers=workers,
            )
            words.add(made.words.tobytes())
    assert len(words) == 3


def test_predictions_do_not_depend_on_threads() -> None:
    booster, (table, _, _) = fit("multiclass"), sample()
    assert booster.raw_scores(table, n_threads=2).tobytes() == booster.raw_scores(table).tobytes()
