"""Parts of the learner on Spark that need no Spark: the line between ranks and driver, vectors, choice of columns."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dmlgbm.collectives import AuthenticationError, StaleGenerationError
from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.objectives import RowError
from dmlgbm.gbdt.ranks.fit_report import TreeCounts
from dmlgbm.gbdt.ranks.rank import CountedIteration
from dmlgbm.sklearn_api.tables import table_from
from dmlgbm.spark_backend.frames import all_but, columns_of_model, require_classic
from dmlgbm.spark_backend.rank_task import error_message, iteration_message, iteration_of
from dmlgbm.spark_backend.reports import DriverLine, Kind, RankLine

SECRET = bytes(range(32))


@pytest.fixture
def driver() -> Iterator[DriverLine]:
    with DriverLine("127.0.0.1", "127.0.0.1", "session", SECRET, 1, 2) as line:
        yield line


def test_messages_of_a_rank_arrive_whole_and_in_order(driver: DriverLine) -> None:
    payloads = [b"", b"a", bytes(3 << 20)]
    with RankLine(driver.address, 0) as rank:
        for payload in payloads:
            rank.tell(Kind.ITERATION, payload)
    heard = driver.rest(10.0)
    assert [message.payload for message in heard] == payloads
    assert {(message.kind, message.rank) for message in heard} == {(Kind.ITERATION, 0)}


def test_request_to_stop_reaches_the_first_rank(driver: DriverLine) -> None:
    with RankLine(driver.address, 0) as rank:
        assert rank.stop_reason() is None
        rank.tell(Kind.ITERATION, b"one")
        assert driver.next(10.0) is not None
        driver.stop("enough")
        reason = None
        while reason is None:
            reason = rank.stop_reason()
        assert reason == "enough"


def test_strangers_and_ranks_of_other_generations_are_turned_away(driver: DriverLine) -> None:
    with pytest.raises(AuthenticationError):
        RankLine(replace(driver.address, secret=bytes(32)), 0)
    with pytest.raises(StaleGenerationError):
        RankLine(replace(driver.address, generation=0), 0)
    host, _, port = driver.address.address.removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n" * 20)
        with RankLine(driver.address, 1) as rank:
            rank.tell(Kind.ERROR, b"told")
    assert [message.rank for message in driver.rest(10.0)] == [1]


def test_iterations_and_errors_survive_the_way_as_words() -> None:
    trees = Booster((), np.zeros(1), "squared_error", Columns(("a", "b"), (None, None)))
    at_start, after = ((Evaluation("valid", "rmse", value, False),) for value in (0.7, 0.1 + 0.2))
    report = CountedIteration(3, 9, trees, list(after), (TreeCounts(4, 50, 0.6),), at_start=at_start)
    found = iteration_of(iteration_message(report))
    assert (found.iteration, found.n_iterations, found.counts) == (3, 9, report.counts)
    assert (found.evaluations, found.at_start) == (report.evaluations, at_start)
    assert found.new_trees.to_bytes() == trees.to_bytes()
    assert b'["RowError", ["The target", 7, "is odd.", null]' in error_message(RowError("The target", 7, "is odd."))


def vectors(rows: list[tuple[int, int | None, list[int] | None, list[float]]]) -> pa.Array:
    """Vectors as Spark lays them out: (type, size, indices, values), type 0 is sparse."""
    layout = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    return pa.array([dict(zip(("type", "size", "indices", "values"), row, strict=True)) for row in rows], layout)


def test_sparse_and_dense_vectors_become_the_same_columns() -> None:
    column = vectors([(1, None, None, [1.0, 0.0, 2.0]), (0, 3, [1], [5.0]), (0, 3, [], [])])
    table = table_from(pa.table({"v": column, "x": [1.5, None, 2.5]}))
    assert table.names == ("v[0]", "v[1]", "v[2]", "x")
    dense = np.zeros((3, 3))
    for element, sparse in enumerate(table.columns[:3]):
        dense[sparse.rows, element] = sparse.values  # type: ignore[union-attr]
    assert dense.tolist() == [[1, 0, 2], [0, 5, 0], [0, 0, 0]]


def test_vectors_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'v' of X holds vectors of 3 and, in row 1, of 4 elements"):
        table_from(pa.table({"v": vectors([(0, 3, [1], [5.0]), (0, 4, [1], [5.0])])}))


def frame(*names: str, vector: str = "") -> Any:
    class VectorUDT:
        pass

    fields = [SimpleNamespace(name=name, dataType=VectorUDT() if name == vector else object()) for name in names]
    return SimpleNamespace(columns=list(names), schema=SimpleNamespace(fields=fields))


def test_frames_of_spark_connect_are_refused() -> None:
    class DataFrame:
        __module__ = "pyspark.sql.connect.dataframe"

    with pytest.raises(TypeError, match="use a classic session"):
        require_classic(DataFrame())


def test_columns_without_another_purpose_are_features() -> None:
    chosen = all_but(frame("a", "y", "w", "b"), {"y": "y", "sample_weight": "w"}, "X")
    assert chosen.features == ("a", "b")
    with pytest.raises(ValueError, match="no column left for features beside 'y'"):
        all_but(frame("y"), {"y": "y"}, "X")
    with pytest.raises(ValueError, match="X has 2 columns named 'a'"):
        all_but(frame("a", "a", "y"), {"y": "y"}, "X")


def test_models_find_their_columns_by_name_also_inside_vectors() -> None:
    assert columns_of_model(frame("id", "b", "v", "a"), ("a", "v[0]", "v[1]", "b"), 4).features == ("a", "v", "b")
    assert columns_of_model(frame("id", "v", vector="v"), None, 7).features == ("v",)
    assert columns_of_model(frame("p", "q"), None, 2).features == ("p", "q")
    with pytest.raises(ValueError, match="fitted with 3 features without names"):
        columns_of_model(frame("p", "q"), None, 3)
