"""The loop over epochs that every rank runs, whatever the strategy: train, evaluate, commit, stop early."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.neural.batches import BatchSource
from dmlgbm.neural.blueprints import ModelBlueprint
from dmlgbm.neural.commits import Commit, EpochsSoFar
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.evaluation import evaluate
from dmlgbm.neural.gradient_channel import GradientChannel, make_compressor
from dmlgbm.neural.history import COLUMNS, RankHistory
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.optimisers import OPTIMISERS
from dmlgbm.neural.rank_states import gather_rank_states, restore_rank_state
from dmlgbm.neural.schedules import Schedule
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.strategies import Strategy, make_strategy

if TYPE_CHECKING:
    from dmlgbm.collectives import Communicator


@dataclass(frozen=True)
class Job:
    """What is trained and how; the same on every rank, and picklable."""

    blueprint: ModelBlueprint
    settings: TrainingSettings
    classifies: bool
    strategy: str = "allreduce"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """The result of a run, equal on all ranks: the model of the group and how it came about."""

    parameters: FloatArray
    buffers: FloatArray
    so_far: EpochsSoFar


def train(
    communicator: Communicator,
    job: Job,
    shard: RowShard,
    validation: RowShard | None = None,
    start: Commit | None = None,
    on_commit: Callable[[Commit], None] | None = None,
) -> Trained:
    """Train this rank's part of a job, from the beginning or from a commit.

    `on_commit` is called on rank 0 after every epoch; all ranks are given one, or none.
    """
    context = make_context(communicator, job, shard, validation)
    strategy = make_strategy(job.strategy, job.strategy_options)
    strategy.check(context)
    try:
        strategy.begin(context)
        so_far = EpochsSoFar() if start is None else _go_on(context, strategy, start)
        while context.epoch < job.settings.max_epochs and not so_far.stopped:
            _train_epoch(context, strategy)
            _judge(context, job, strategy, so_far)
            context.epoch += 1
            if on_commit is not None:
                ranks = gather_rank_states(context, strategy)
                if context.rank == 0:
                    on_commit(_commit(context, strategy, so_far, ranks))
    finally:
        strategy.end(context)
    return _result(context, so_far)


def make_context(communicator: Communicator, job: Job, shard: RowShard, validation: RowShard | None) -> RankContext:
    """The context of one rank at the beginning."""
    settings, model = job.settings, job.blueprint.build()
    batches = BatchSource(
        shard, settings.batch_size, settings.sampling, settings.seed, communicator.rank, communicator.world_size
    )
    optimiser = OPTIMISERS[settings.optimiser](**settings.optimiser_options)
    optimiser.begin(model.parameters, model.parts)
    history = RankHistory()
    compressor = make_compressor(settings.compression, settings.compression_options)
    return RankContext(
        communicator=communicator,
        model=model,
        shard=shard,
        batches=batches,
        optimiser=optimiser,
        schedule=Schedule(
            settings.schedule,
            settings.learning_rate,
            settings.max_epochs * batches.steps_per_epoch,
            settings.warmup_steps,
        ),
        settings=settings,
        history=history,
        channel=GradientChannel(communicator, history, compressor),
        validation=validation,
    )


def _go_on(context: RankContext, strategy: Strategy, start: Commit) -> EpochsSoFar:
    context.epoch, context.step = start.epoch, start.step
    context.model.parameters[...] = start.parameters
    context.model.buffers[...] = start.buffers
    context.optimiser.restore(start.optimiser)
    strategy.restore(start.strategy)
    restore_rank_state(context, strategy, start)
    return copy.deepcopy(start.so_far)


def _train_epoch(context: RankContext, strategy: Strategy) -> None:
    sent_before = context.communicator.bytes_sent
    context.history.begin_epoch()
    strategy.begin_epoch(context)
    strategy.train_epoch(context)
    strategy.finish_epoch(context)
    context.history.close_epoch(context.communicator.bytes_sent - sent_before)


def _judge(context: RankContext, job: Job, strategy: Strategy, so_far: EpochsSoFar) -> None:
    """Bring the records of all ranks together, evaluate, and decide alike on every rank whether to stop."""
    settings, record = job.settings, context.history.epochs[-1]
    own = np.array([record[name] for name in COLUMNS])
    table = own[None] if context.world_size == 1 else context.communicator.all_gather(own)
    epoch = _summary(table)
    epoch["epoch"] = context.epoch
    so_far.epochs.append(epoch)
    if context.validation is not None:
        epoch["score"] = evaluate(context.model, context.validation, job.classifies, context.communicator)
    if not strategy.has_result(context):
        return
    score = epoch.get("score", -epoch["loss"])
    if score > so_far.best_score + (settings.tolerance if so_far.best_epoch >= 0 else 0.0):
        so_far.best_score, so_far.best_epoch = score, context.epoch
        if settings.restore_best and context.validation is not None:
            so_far.best_parameters = context.model.parameters.copy()
            so_far.best_buffers = context.model.buffers.copy()
    waited_long = settings.patience is not None and context.epoch - so_far.best_epoch >= settings.patience
    arrived = settings.target_score is not None and score >= settings.target_score
    so_far.stopped = waited_long or arrived


def _summary(table: FloatArray) -> dict[str, Any]:
    """One epoch of the group from the records of its ranks: shares of the loss and bytes add up."""
    ranks = [dict(zip(COLUMNS, map(float, row), strict=True)) for row in table]
    column = {name: [rank[name] for rank in ranks] for name in COLUMNS}
    return {
        "loss": sum(column["loss"]),
        "steps": max(column["steps"]),
        "bytes_sent": sum(column["bytes_sent"]),
        "wait_seconds": float(np.mean(column["wait_seconds"])),
        "seconds": max(column["seconds"]),
        "staleness_mean": float(np.mean(column["staleness_mean"])),
        "staleness_max": max(column["staleness_max"]),
        "ranks": ranks,
    }


def _commit(context: RankContext, strategy: Strategy, so_far: EpochsSoFar, ranks: tuple[bytes, ...]) -> Commit:
    model = context.model
    return Commit(
        context.epoch,
        context.step,
        model.parameters.copy(),
        model.buffers.copy(),
        context.optimiser.saved(),
        strategy.state(),
        copy.deepcopy(so_far),
        ranks,
    )


def _result(context: RankContext, so_far: EpochsSoFar) -> Trained:
    parameters, buffers = context.model.parameters, context.model.buffers
    if so_far.best_parameters is not None and so_far.best_buffers is not None:
        parameters, buffers = so_far.best_parameters, so_far.best_buffers
    return Trained(parameters, buffers, so_far)
