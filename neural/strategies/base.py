"""What a strategy is: the way ranks keep their models together while they train. One file each in this folder.

A strategy is a dataclass. Its fields are its options: declared with defaults, checked in `__post_init__` (raise
ValueError that names the option), and given by users as `strategy_options={...}`. State of a run is kept in fields
declared with `field(init=False)` and made in `begin`.

The loop (`dmlgbm.neural.training.train`) calls, on every rank in the same order:

    strategy.check(context)                 refuse models and settings it cannot use, before anything is sent
    strategy.begin(context)                 make state; ranks start with equal parameters
    for epoch: strategy.train_epoch(context)
        a SteppedStrategy: for batch in batches(context, epoch):
            loss = step(context, batch)     this rank's share of the loss of the batch
    strategy.finish_epoch(context)          flush; afterwards `model` is what is evaluated and committed
    strategy.end(context)                   also after an error

`batches` gives the global scope by default. In the own scope it must yield the same number of batches on every rank; a
strategy that goes by rounds instead of batches has a `train_epoch` of its own. `finish_epoch` must leave the same
`model.parameters` and `model.buffers` on every rank (the model of the group), because validation, early stopping and
commits use them.
A strategy whose ranks go on from different models keeps its own copy and puts it back in `begin_epoch`.

What a strategy works with is the `RankContext`:

    context.rank, context.world_size, context.communicator     collectives; bytes and waiting are counted there
    context.model.parameters / .gradients / .buffers           flat vectors; `parts` and `layer_range` say what is where
    context.compute_gradients(batch, ...)                      forward and backward; checks that the loss is finite
    context.update()                                           penalty, clipping, optimiser and schedule: one step
    context.channel.all_reduce(key, array)                           sum over ranks, through the codec of `compression=`
    context.shard, context.batches, context.settings, context.history, context.seed
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dmlgbm.neural.batches import Batch
    from dmlgbm.neural.context import RankContext


class Strategy(ABC):
    """Base of all strategies; see the module docstring for the order of calls."""

    name: ClassVar[str]
    # Whether training may go on with fewer ranks after one was lost.
    elastic: ClassVar[bool] = True
    # Whether all ranks apply the same updates, so that batch normalisation can be synchronised inside a step.
    synchronous: ClassVar[bool] = True
    # Whether the optimiser of each rank has gone its own way at the end of an epoch.
    own_optimisers: ClassVar[bool] = False

    @classmethod
    def option_names(cls) -> list[str]:
        """The options users may give."""
        return [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]

    def check(self, context: RankContext) -> None:  # noqa: B027 - some take everything
        """Raise ValueError if this strategy cannot train this model with these settings."""

    def begin(self, context: RankContext) -> None:  # noqa: B027 - most strategies have nothing to make
        """Make the state of a run."""

    def begin_epoch(self, context: RankContext) -> None:  # noqa: B027
        """Called before the batches of each epoch."""

    @abstractmethod
    def train_epoch(self, context: RankContext) -> None:
        """All training of `context.epoch`."""

    def finish_epoch(self, context: RankContext) -> None:  # noqa: B027
        """Leave the model of the group in `context.model` on every rank."""

    def has_result(self, context: RankContext) -> bool:
        """Whether the model after this epoch is what a user asked for; early stopping looks at no other."""
        return True

    def end(self, context: RankContext) -> None:  # noqa: B027
        """Give back what `begin` took."""

    def state(self) -> dict[str, Any]:
        """Arrays of this strategy that a commit must hold besides model and optimiser; equal on all ranks."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Take back what `state` returned; called after `begin`."""

    def rank_state(self) -> dict[str, Any]:
        """Arrays that this rank alone has and needs to go on exactly; of the same names on all ranks."""
        return {}

    def restore_rank(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Take back what `rank_state` returned on this rank, after `restore`; not called where other ranks go on."""


class SteppedStrategy(Strategy):
    """A strategy whose epochs are steps over batches, one after the other."""

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch; the same number on every rank."""
        return context.batches.global_epoch(epoch)

    def train_epoch(self, context: RankContext) -> None:
        """All steps of `context.epoch`."""
        for batch in self.batches(context, context.epoch):
            context.history.add_loss(self.step(context, batch), batch)

    @abstractmethod
    def step(self, context: RankContext, batch: Batch) -> float:
        """Train on one batch; this rank's share of its loss, as `compute_gradients` returned it."""
