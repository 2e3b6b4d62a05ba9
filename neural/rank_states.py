"""What each rank knows alone, and must know again to go on exactly: saved with commits, given back to the same ranks.

Ranks that train apart have optimisers of their own, ranks that send through a lossy codec keep what it left out, and
strategies may keep more. A commit holds this for every rank. Where other ranks go on than were there, it has no
owners any more, and they begin with what all know.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from dmlgbm.neural.commits import Commit, packed_arrays, unpacked_arrays
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.strategies import Strategy

logger = logging.getLogger("dmlgbm")


def gather_rank_states(context: RankContext, strategy: Strategy) -> tuple[bytes, ...]:
    """On rank 0 what every rank knows alone; nothing elsewhere, or where all know the same. All ranks call it."""
    state: dict[str, Any] = {f"strategy.{name}": value for name, value in strategy.rank_state().items()}
    if strategy.own_optimisers:
        state |= {f"optimiser.{name}": value for name, value in context.optimiser.saved().items()}
    if context.channel.compressor is not None:
        state |= {f"compressor.{name}": value for name, value in context.channel.compressor.save().items()}
    if not state:
        return ()
    packed = np.frombuffer(packed_arrays(state), np.uint8)
    if context.world_size == 1:
        return (packed.tobytes(),)
    nothing = packed[:0]
    arrived = context.communicator.all_to_all_unequal([packed, *[nothing] * (context.world_size - 1)])
    return tuple(array.tobytes() for array in arrived) if context.rank == 0 else ()


def restore_rank_state(context: RankContext, strategy: Strategy, start: Commit) -> None:
    """Take back what this rank knew, if the same number of ranks goes on."""
    if not start.ranks:
        return
    if len(start.ranks) != context.world_size:
        if context.rank == 0:
            logger.warning(
                "Training goes on with %d ranks instead of %d: what each rank knew alone (its optimiser, changes that "
                "were not sent yet) is lost, and the result is not that of an undisturbed run",
                context.world_size,
                len(start.ranks),
            )
        return
    state = unpacked_arrays(start.ranks[context.rank])

    def group(prefix: str) -> dict[str, Any]:
        return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}

    if optimiser := group("optimiser."):
        context.optimiser.restore(optimiser)
    if context.channel.compressor is not None:
        context.channel.compressor.restore(group("compressor."))
    strategy.restore_rank(group("strategy."))
