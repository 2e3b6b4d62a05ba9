"""From the updates of clients, which lie on several ranks, to one update of the model: plain, robust or secure.

Every function is called on all ranks, with the updates of this rank's clients, and returns the same bits on each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.aggregation.fixed_point import from_ring, to_ring
from dmlgbm.neural.aggregation.masking import MaskingClient, unmasked
from dmlgbm.neural.aggregation.robust import ROBUST_AGGREGATES
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.strategies.parts.updates import UpdateSum


@dataclass(frozen=True)
class ClientUpdate:
    """What a client has learnt; `arrived` is False for one that was lost after it had agreed to take part."""

    client: int
    weight: float
    values: FloatArray
    arrived: bool = True


def weighted_sum(
    context: RankContext, updates: Sequence[ClientUpdate], add_up: UpdateSum, divisor: float | None
) -> FloatArray:
    """Weights times updates, over `divisor`; None divides by the sum of the weights."""
    arrived = [update for update in updates if update.arrived]
    if divisor is None:
        divisor = float(_sum_over_ranks(context, np.array([sum(update.weight for update in arrived)], np.float64))[0])
    total = _zeros(context)
    if not divisor:
        return total
    for update in arrived:
        total += update.values * total.dtype.type(update.weight / divisor)
    return add_up(context, "clients", total)


def robust_aggregate(
    context: RankContext, updates: Sequence[ClientUpdate], aggregator: str, hostile_fraction: float
) -> FloatArray:
    """What the chosen rule makes of all updates; every rank sees all of them."""
    arrived = [update for update in updates if update.arrived]
    numbers = np.array([update.client for update in arrived], np.int64)
    table = np.stack([update.values for update in arrived]) if arrived else _zeros(context)[None][:0]
    if context.world_size > 1:
        with context.history.waiting():
            numbers = np.concatenate(context.communicator.all_gather_unequal(numbers))
            table = np.concatenate(context.communicator.all_gather_unequal(table))
    if not len(table):
        return _zeros(context)
    ordered = table[np.argsort(numbers, kind="stable")]
    return ROBUST_AGGREGATES[aggregator](ordered, int(np.ceil(hostile_fraction * len(ordered))))


def secure_sum(context: RankContext, updates: Sequence[ClientUpdate], bits: int, divisor: float | None) -> FloatArray:
    """As `weighted_sum`, but ranks see masked vectors only; sums are in fixed point with `bits` after the point."""
    numbers = _gather_rows(context, np.array([[update.client] for update in updates], np.int64).reshape(-1, 1))[:, 0]
    positions = {int(number): position for position, number in enumerate(np.sort(numbers))}
    n_clients = len(positions)
    if not n_clients:
        return _zeros(context)
    threshold = -(-2 * n_clients // 3)
    clients = [MaskingClient(positions[update.client], n_clients, threshold) for update in updates]
    order = [client.number for client in clients]
    publics = _gather_messages(context, order, [client.publics() for client in clients])
    parcels = _gather_messages(context, order, [client.parcels(publics) for client in clients])
    for client in clients:
        client.receive(parcels)
    total = np.zeros(len(_zeros(context)) + 1, np.uint64)
    arrived = np.zeros(n_clients, np.int64)
    for client, update in zip(clients, updates, strict=True):
        if update.arrived:
            vector = np.append(update.values.astype(np.float64) * update.weight, update.weight)
            total += client.masked(to_ring(vector, bits, n_clients))
            arrived[client.number] = 1
    arrived = _sum_over_ranks(context, arrived)
    total = _sum_over_ranks(context, total)
    here = arrived.astype(bool).tolist()
    left = [client for client in clients if here[client.number]]
    messages = _gather_messages(context, [client.number for client in left], [client.revealed(here) for client in left])
    holders = [position for position in range(n_clients) if here[position]]
    plain = unmasked(total, here, publics, dict(zip(holders, messages, strict=True)), threshold)
    sums = from_ring(plain, bits)
    weight = sums[-1] if divisor is None else divisor
    return (sums[:-1] / weight).astype(context.model.parameters.dtype) if weight else _zeros(context)


def _zeros(context: RankContext) -> FloatArray:
    """An update of nothing: parameters, then buffers."""
    model = context.model
    return np.zeros(len(model.parameters) + len(model.buffers), model.parameters.dtype)


def _sum_over_ranks(context: RankContext, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if context.world_size == 1:
        return values
    with context.history.waiting():
        return context.communicator.all_reduce(values)


def _gather_rows(context: RankContext, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if context.world_size == 1:
        return rows
    with context.history.waiting():
        return np.concatenate(context.communicator.all_gather_unequal(rows))


def _gather_messages(context: RankContext, numbers: Sequence[int], messages: Sequence[bytes]) -> list[bytes]:
    """The messages of the clients of all ranks, in the order of the clients."""
    size = _gather_rows(context, np.array([[len(message)] for message in messages], np.int64).reshape(-1, 1))
    width = int(size[0, 0]) if len(size) else 0
    table = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), width)
    everyone = _gather_rows(context, np.array(numbers, np.int64).reshape(-1, 1))[:, 0]
    rows = _gather_rows(context, table)
    return [rows[row].tobytes() for row in np.argsort(everyone)]
