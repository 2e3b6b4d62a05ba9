"""Dask arrays whose chunks are scipy's sparse matrices train and predict as the whole matrix does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

N_ROWS, N_COLUMNS = 603, 9
PARAMETERS: dict[str, Any] = {"n_estimators": 4, "num_leaves": 7, "min_child_samples": 5, "n_jobs": 1}


@pytest.fixture(scope="module")
def matrix() -> sp.csr_matrix:
    return sp.random(N_ROWS, N_COLUMNS, density=0.2, format="csr", random_state=0)


@pytest.fixture(scope="module")
def target(matrix: sp.csr_matrix) -> np.ndarray:
    return np.asarray(matrix @ np.arange(N_COLUMNS)).ravel()


def in_chunks(
    matrix: Any, kind: Callable[[Any], Any], bounds: tuple[int, ...] = (0, 200, 201, 450, N_ROWS)
) -> da.Array:
    parts = [dask.delayed(kind(matrix[start:stop])) for start, stop in pairwise(bounds)]
    meta = kind(sp.csr_matrix((0, 0)))
    return da.concatenate(
        [
            da.from_delayed(part, (stop - start, matrix.shape[1]), meta=meta)
            for part, (start, stop) in zip(parts, pairwise(bounds), strict=True)
        ]
    )


def model_bytes(model: Any) -> bytes:
    return bytes(model.booster_.to_bytes())


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_matrix])
def test_sparse_chunks_train_and_predict_as_the_matrix(
    kind: Callable[[Any], Any], matrix: sp.csr_matrix, target: np.ndarray
) -> None:
    local = DMLGBMClassifier(**PARAMETERS).fit(matrix, target > 3)
    X = in_chunks(matrix, kind)
    with dask.config.set(scheduler="synchronous"):
        fitted = DMLGBMClassifier(**PARAMETERS).fit(X, da.from_array(target > 3, chunks=100))
        assert model_bytes(fitted) == model_bytes(local)
        for method in ("predict", "predict_proba", "apply"):
            predicted = getattr(local, method)(X)
            assert predicted.chunks[0] == X.chunks[0]
            assert (predicted.compute() == getattr(local, method)(matrix)).all()


def test_sparse_chunks_train_on_a_cluster_as_the_matrix(
    client: Client, matrix: sp.csr_matrix, target: np.ndarray
) -> None:
    weight = np.arange(N_ROWS) % 3 + 1.0

    def fitted(X: Any) -> DMLGBMRegressor:
        model = DMLGBMRegressor(**PARAMETERS, early_stopping=True)
        return model.fit(X, target, sample_weight=weight, eval_set=[(X, target)])

    local, distributed = fitted(matrix), fitted(in_chunks(matrix, sp.csr_matrix))
    assert model_bytes(distributed) == model_bytes(local)
    assert distributed.evals_result_ == local.evals_result_
    assert (local.predict(in_chunks(matrix, sp.csr_matrix)).compute() == local.predict(matrix)).all()


def test_sparse_chunks_of_several_columns_and_queries_across_chunks(matrix: sp.csr_matrix, target: np.ndarray) -> None:
    group = [100, 300, 203]
    grades = (target > 2).astype(np.int64)
    narrow = da.concatenate([in_chunks(matrix[:, :5], sp.csr_matrix), in_chunks(matrix[:, 5:], sp.csr_matrix)], axis=1)
    local = DMLGBMRanker(**PARAMETERS).fit(matrix, grades, group=group)
    with dask.config.set(scheduler="synchronous"):
        fitted = DMLGBMRanker(**PARAMETERS).fit(narrow, grades, group=group)
        assert model_bytes(fitted) == model_bytes(local)
        assert (local.predict(narrow).compute() == local.predict(matrix)).all()


def test_rows_set_aside_of_sparse_chunks_are_those_of_the_matrix(matrix: sp.csr_matrix, target: np.ndarray) -> None:
    def fitted(X: Any) -> bytes:
        return model_bytes(DMLGBMRegressor(**PARAMETERS, early_stopping=True).fit(X, target))

    with dask.config.set(scheduler="synchronous"):
        assert fitted(in_chunks(matrix, sp.csr_matrix)) == fitted(matrix)


def test_dense_and_sparse_chunks_of_one_array_are_refused(matrix: sp.csr_matrix, target: np.ndarray) -> None:
    sparse, dense = in_chunks(matrix[:300], sp.csr_matrix, (0, 300)), da.from_array(matrix[300:].toarray(), chunks=-1)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(TypeError, match="sparse numbers in partition 0 but dense numbers in partition 1"),
    ):
        DMLGBMRegressor(**PARAMETERS).fit(da.concatenate([sparse, dense]), target)
