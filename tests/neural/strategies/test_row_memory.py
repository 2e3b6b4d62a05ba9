"""Values of rows through codecs: both ends believe the same, and what was left out comes when rows come again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.compression import CODECS, GatheredCodec
from dmlgbm.neural.strategies.parts.row_memory import RowMemory

N_ROWS, WIDTH = 40, 6


def ends(name: str, **options: Any) -> tuple[RowMemory, RowMemory]:
    codec = CODECS[name](**options)
    assert isinstance(codec, GatheredCodec)
    sender, receiver = (RowMemory(codec, N_ROWS, WIDTH, "float32") for _ in range(2))
    return sender, receiver


def passed(sender: RowMemory, receiver: RowMemory, rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, int]:
    """What the receiver makes of a message, and its length; the sender knows it too."""
    room = receiver.room(rows)
    message, believed = sender.outgoing(rows, values)
    room[...] = message
    found = receiver.incoming(rows, room)
    np.testing.assert_array_equal(found, believed)
    return found, message.nbytes


@pytest.mark.parametrize("codec", [("top_k", {"fraction": 0.2}), ("int8", {}), ("one_bit", {}), ("fp16", {})], ids=str)
def test_what_was_left_out_comes_with_the_same_rows(codec: tuple[str, dict[str, Any]]) -> None:
    rng = np.random.default_rng(0)
    sender, receiver = ends(codec[0], **codec[1])
    rows, others = np.arange(0, 20), np.arange(20, N_ROWS)
    first = rng.normal(size=(20, WIDTH)).astype(np.float32)
    found, n_whole = passed(sender, receiver, rows, first)
    np.testing.assert_array_equal(found, first)
    wanted = first + rng.normal(size=first.shape).astype(np.float32)
    distances = []
    for _ in range(20):
        found, n_bytes = passed(sender, receiver, rows, wanted)
        assert n_bytes <= 0.55 * n_whole
        distances.append(np.linalg.norm(found - wanted))
        passed(sender, receiver, others, rng.normal(size=first.shape).astype(np.float32))
    assert distances[-1] < 0.1 * np.linalg.norm(first - wanted)


def test_rows_that_are_new_or_named_twice() -> None:
    rng = np.random.default_rng(1)
    sender, receiver = ends("top_k", fraction=0.3)
    for rows in (np.array([3, 3, 5]), np.array([3, 5, 5, 3]), np.array([3, 7]), np.array([7, 7, 3])):
        values = rng.normal(size=(len(rows), WIDTH)).astype(np.float32)
        found, n_bytes = passed(sender, receiver, rows, values)
        is_whole = n_bytes == values.nbytes
        assert is_whole == (rows[0] == 3 and rows[1] in (3, 7))  # the batches with rows that had not travelled yet
        if is_whole:
            np.testing.assert_array_equal(found, values)


def test_ranks_without_values_take_part() -> None:
    codec = CODECS["int8"]()
    assert isinstance(codec, GatheredCodec)
    memory = RowMemory(codec, N_ROWS, 0, "float64")
    for _ in range(2):
        message, believed = memory.outgoing(np.arange(4), np.empty((4, 0)))
        assert message.dtype == np.uint8
        assert (message.nbytes, believed.shape) == (0, (4, 0))
