"""Ranks expect how long messages are; what comes through does not depend on whether they were right."""

from __future__ import annotations

import numpy as np

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.kernels.part_messages import HEAD_BYTES, LENGTH_BYTES
from dmlgbm.gbdt.ranks.exchange import RankExchange
from dmlgbm.gbdt.ranks.histogram_messages import HistogramMessages

N_BYTES = (100, 20_000)  # of the one part that each rank has; far more than is expected at first


def _part_of_other(communicator: Communicator) -> list[tuple[int, bool]]:
    """Calls made by each of two exchanges, and whether the part of the other rank came through."""
    exchange = RankExchange(communicator)
    messages = HistogramMessages(exchange, part_bytes=24_000)
    own, other = communicator.rank, 1 - communicator.rank
    found = []
    for value in (1, 2):
        messages.parts.bytes[0] = value + 10 * own
        messages.parts.lengths[0], messages.parts.lengths[0, own] = N_BYTES[own], 0
        messages.parts.classes[0] = 5
        before = exchange.traffic.calls
        received = messages.swap(1)
        assert received is not None
        first = HEAD_BYTES + LENGTH_BYTES
        length = int(received[other, HEAD_BYTES:first].view(np.int32)[0])
        part = received[other, first : first + length]
        is_right = length == N_BYTES[other] and bool((part == value + 10 * other).all())
        found.append((exchange.traffic.calls - before, is_right))
    return found


def test_messages_longer_than_expected_are_sent_again_once() -> None:
    assert run_threads(_part_of_other, 2) == [[(2, True), (1, True)]] * 2


def _nothing(communicator: Communicator) -> int:
    exchange = RankExchange(communicator)
    assert HistogramMessages(exchange, part_bytes=100).swap(1) is None
    return exchange.traffic.calls


def test_nothing_to_send_takes_no_call() -> None:
    assert run_threads(_nothing, 2) == [0, 0]
