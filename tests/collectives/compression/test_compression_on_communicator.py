"""Compressed sums over the real communicator equal those over the plain one, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.compression import CODECS, Codec, Compressor, PeerRefusedError, RankGroup, compressed_all_reduce
from dmlgbm.collectives.joining.launch import run_threads
from tests.reference.threaded_ranks import run_on_ranks

WORLD_SIZE = 3


def run_on_communicators(work: Callable[[RankGroup], Any]) -> list[Any]:
    return run_threads(work, WORLD_SIZE)


def sums(group: RankGroup, codec: Codec) -> list[bytes]:
    compressor = Compressor(codec)
    arrays = [np.random.default_rng([group.rank, step]).normal(size=(40, 30)) for step in range(4)]
    results = [compressed_all_reduce(group, array, compressor, "w") for array in arrays]
    results.append(compressed_all_reduce(group, np.zeros((0, 3), np.float32), compressor, "empty"))
    return [result.tobytes() for result in results]


@pytest.mark.parametrize("name", CODECS)
def test_sums_are_those_of_the_plain_ranks_on_every_rank(name: str) -> None:
    codec = CODECS[name]()
    expected = run_on_ranks(WORLD_SIZE, lambda rank: sums(rank, codec))[0]
    assert run_on_communicators(lambda group: sums(group, codec)) == [expected] * WORLD_SIZE


def refusal(group: RankGroup, codec: Codec) -> str:
    compressor = Compressor(codec)
    error = ValueError if group.rank == 1 else PeerRefusedError
    array = np.full((40, 30), np.nan if group.rank == 1 else 1.0)
    with pytest.raises(error) as caught:
        compressed_all_reduce(group, array, compressor, "w")
    compressed_all_reduce(group, np.ones((40, 30)), compressor, "w")
    return str(caught.value)


@pytest.mark.parametrize("name", CODECS)
def test_nan_on_one_rank_raises_on_all_and_the_session_goes_on(name: str) -> None:
    messages = run_on_communicators(lambda group: refusal(group, CODECS[name]()))
    assert "array[0, 0] of key 'w' is nan" in messages[1]
    assert "ranks [1] refused" in messages[0]
    assert messages[0] == messages[2]
