"""Trains one rank: the boosting loop of the engine over this rank's rows, together with all other ranks.

Every rank calls `train_rank` with its own rows and the same task, and gets the same model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives import Communicator
from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import add_trees
from dmlgbm.gbdt.boosting.dropout import Dropout, TreeSums, sums_over
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet, Evaluator
from dmlgbm.gbdt.boosting.local_run import check_outputs, continued, empty_model, loss_over
from dmlgbm.gbdt.boosting.loop import BoostingRun, Finished, IterationReport, TrainingResult, boost
from dmlgbm.gbdt.boosting.refitting import LeafFitting
from dmlgbm.gbdt.callbacks import Callback, Evaluation
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.partition_binning import BinningPlan
from dmlgbm.gbdt.data.row_numbers import Segment, global_row_number, whole_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.growth.round_grower import LeafExpander, RoundGrower
from dmlgbm.gbdt.growth.row_arrays import row_arrays
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import ObjectiveSettings, RowError
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.column_shares import exchange_columns, gathered_rows, gatherer
from dmlgbm.gbdt.ranks.data_parallel import DataParallel, trees_at_once
from dmlgbm.gbdt.ranks.exchange import RankExchange
from dmlgbm.gbdt.ranks.feature_parallel import FeatureParallel
from dmlgbm.gbdt.ranks.finished_iterations import BiasReplay, replayed_biases
from dmlgbm.gbdt.ranks.fit_report import RankReport, TreeCounts
from dmlgbm.gbdt.ranks.rank_data import RankData, RankPartition
from dmlgbm.gbdt.ranks.refitting import RowsToRefit
from dmlgbm.gbdt.ranks.voting_parallel import VotingParallel
from dmlgbm.gbdt.threads import Workers

__all__ = [
    "Checkpoint",
    "CountedIteration",
    "IterationReport",
    "RankData",
    "RankPartition",
    "RankResult",
    "RankTask",
    "refit_rank",
    "train_rank",
]

FloatArray = npt.NDArray[np.float64]
TreeLearner = Literal["data", "feature", "voting"]


@dataclass(frozen=True)
class RankTask:
    """What is trained; the same on every rank, but for the number of threads."""

    parameters: TrainParameters  # n_estimators are added to `initial_model`
    objective: ObjectiveSettings
    plan: BinningPlan
    columns: Columns
    n_total_rows: int
    metrics: tuple[Metric, ...] = ()
    tree_learner: TreeLearner = "data"
    top_k: int = 20
    initial_model: Booster | None = None
    # Trained before: its leaves are fitted again on all rows, those of evaluation sets included, and nothing is grown.
    to_refit: Booster | None = None


@dataclass(frozen=True)
class CountedIteration(IterationReport):
    """What one iteration added, and what each of its trees took this rank."""

    counts: tuple[TreeCounts, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """The iterations that are finished; a fit goes on from it to the same model as without interruption."""

    trees: Booster | None = None  # those of this fit alone
    evaluations: tuple[tuple[Evaluation, ...], ...] = ()
    at_start: tuple[Evaluation, ...] = ()  # of the model that the fit goes on from

    def extended(self, report: IterationReport) -> Checkpoint:
        """With one more iteration."""
        before = () if self.trees is None else self.trees.trees
        trees = replace(report.new_trees, trees=(*before, *report.new_trees.trees))
        return Checkpoint(trees, (*self.evaluations, tuple(report.evaluations)), report.at_start)

    def to_bytes(self) -> bytes:
        """The content of a checkpoint file, a model file that also says what was measured."""
        if self.trees is None:
            raise ValueError("a checkpoint without any iteration cannot be saved")
        measured = [[list(evaluation) for evaluation in one] for one in (self.at_start, *self.evaluations)]
        return replace(self.trees, metadata={"evaluations": measured}).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Read what `to_bytes` made; executes nothing."""
        trees = Booster.from_bytes(data)
        measured = tuple(
            tuple(Evaluation(str(name), str(metric), float(value), bool(higher)) for name, metric, value, higher in one)
            for one in trees.metadata["evaluations"]
        )
        return cls(replace(trees, metadata={}), measured[1:], measured[0])

    def finished(self) -> Finished:
        return Finished(() if self.trees is None else self.trees.trees, self.evaluations, self.at_start)


@dataclass(frozen=True)
class RankResult(TrainingResult):
    """The model, the same on all ranks, and what this rank counted."""

    report: RankReport = field(kw_only=True)


def train_rank(
    communicator: Communicator,
    data: RankData,
    task: RankTask,
    *,
    evaluation_sets: Sequence[EvaluationSet] = (),
    callbacks: Sequence[Callback] = (),
    on_iteration: Callable[[CountedIteration], None] | None = None,
    resume: Checkpoint | None = None,
) -> RankResult:
    """Train together with the other ranks; callbacks and `on_iteration` are called on rank 0."""
    exchange = RankExchange(communicator)
    finished = (resume or Checkpoint()).finished()
    with Workers(task.parameters.n_threads) as workers:
        rows = _same_kind_everywhere(data.rows, exchange, task.objective.n_outputs)
        replicated = task.tree_learner == "feature" and not exchange.alone
        with _naming_global_rows(data.segments):
            start = _start(task, rows, data.segments, exchange)
        scores = _first_scores(rows, start, task.initial_model)
        replay = replayed_biases(
            data, rows, task.objective, finished.trees, task.parameters.precision, workers, exchange
        )
        dropout, replayed = _dropout(task, data.dataset, start, finished.trees, scores, replay)
        dataset = data.dataset
        if replicated:
            rows = gathered_rows(replace(rows, init_score=scores), dataset.segments, exchange)
            assert rows.init_score is not None
            scores, dataset = rows.init_score, exchange_columns(dataset, exchange)
            if dropout is not None:
                dropout.tree_sums = _gathered_sums(dropout.tree_sums, data.segments, exchange)
        row_exchange: Exchange = ALONE if replicated else exchange
        with _naming_global_rows(dataset.segments):
            loss = loss_over(rows, task.objective, task.parameters.precision, dataset.segments, row_exchange)
        check_outputs(start, loss)
        if replay is not None:
            replay.hand_on(loss)
        grower = _grower(task, dataset, loss.n_outputs, workers, exchange)
        arrays = row_arrays(loss, scores, task.parameters)
        run = BoostingRun(
            task.parameters, dataset, loss, rows, arrays, [grower], workers, row_exchange, dropout, start.n_iterations
        )
        after = start if dropout is not None else replace(start, trees=(*start.trees, *finished.trees))
        evaluators = [Evaluator(one, after, task.metrics, workers, exchange) for one in evaluation_sets]
        for evaluator in evaluators:
            for changes in replayed:
                evaluator.add(replace(start, trees=tuple(changes)))
        counted = None if on_iteration is None else _with_counts(on_iteration, grower, exchange)
        with _naming_global_rows(dataset.segments):
            result = boost(
                run, start, evaluators, callbacks, finished=finished, on_iteration=counted, exchange=exchange
            )
    return RankResult(**vars(result), report=_report(task, grower, exchange))


def refit_rank(
    communicator: Communicator, data: RankData, task: RankTask, evaluation_sets: Sequence[EvaluationSet]
) -> Booster:
    """The model to refit, with values of its leaves that all rows of all ranks ask for; the same on every rank."""
    exchange = RankExchange(communicator)
    model, initial = task.to_refit, task.initial_model
    assert model is not None
    rows = RowsToRefit.of(data.dataset, data.rows, evaluation_sets)
    joined = _same_kind_everywhere(rows.joined(with_scores=initial is None), exchange, task.objective.n_outputs)
    # Their numbers matter to losses that draw, and estimators refit none of these.
    loss = loss_over(joined, task.objective, task.parameters.precision, whole_table(joined.n_rows), exchange)
    with Workers(task.parameters.n_threads) as workers:
        if initial is None:
            kept = empty_model(loss, task.columns, task.parameters, first_scores=joined.init_score is None)
            scores = _first_scores(joined, kept, None)
        else:
            kept, scores = initial, rows.scores_of(initial, workers)
        new = model.since(kept.n_iterations)
        fitting = LeafFitting(loss, joined, scores, task.parameters, workers, exchange)
        trees = fitting.refitted(new, rows.leaves(new, workers), 0.0, kept.n_iterations)
    return replace(model, base_scores=kept.base_scores, trees=(*kept.trees, *trees), metadata={})


@contextlib.contextmanager
def _naming_global_rows(segments: Sequence[Segment]) -> Iterator[None]:
    """Errors about a row of this rank name its global number."""
    try:
        yield
    except RowError as error:
        raise RowError(error.subject, global_row_number(segments, error.row), error.problem) from None


def _start(task: RankTask, rows: Rows, segments: Sequence[Segment], exchange: Exchange) -> Booster:
    if task.initial_model is not None:
        return continued(task.initial_model, task.parameters)
    loss = loss_over(rows, task.objective, task.parameters.precision, segments, exchange)
    return empty_model(loss, task.columns, task.parameters, first_scores=rows.init_score is None)


def _same_kind_everywhere(rows: Rows, exchange: Exchange, n_outputs: int) -> Rows:
    """A rank without rows does not know what the rows of others have: give it empty arrays of the same kinds."""
    empty: dict[str, Any] = {
        "weight": np.zeros(0),
        "init_score": np.zeros((n_outputs, 0)),
        "group_starts": np.zeros(1, np.int64),
        "position": np.zeros(0, np.int64),
    }
    given = np.array([getattr(rows, name) is not None for name in empty], np.float64)
    somewhere = exchange.reduce_max(given)
    missing = [name for name, here, there in zip(empty, given, somewhere, strict=True) if there and not here]
    if missing and rows.n_rows:
        raise ValueError(f"other ranks have {missing[0]} for their rows, but this one does not: give it for all rows.")
    return replace(rows, **{name: empty[name] for name in missing})


def _first_scores(rows: Rows, start: Booster, initial_model: Booster | None) -> FloatArray:
    """Scores of the model that training goes on from; those of an initial model come with the rows."""
    if initial_model is None:
        base = np.repeat(start.base_scores[:, None], rows.n_rows, axis=1)
        return base if rows.init_score is None else rows.init_score + base
    if rows.init_score is None:
        raise ValueError("the rows have no init_score, the scores of initial_model: compute them from the raw rows.")
    return rows.init_score.astype(np.float64)


def _dropout(
    task: RankTask,
    dataset: Dataset,
    start: Booster,
    trees: Sequence[Tree],
    scores: FloatArray,
    replay: BiasReplay | None,
) -> tuple[Dropout | None, list[Sequence[Tree]]]:
    """Bring the scores to what they were after finished iterations; with dropout, what each of these has changed."""
    if task.parameters.boosting_type == "dart":
        dropout = Dropout(task.parameters, start.n_iterations, sums_over(dataset, len(scores)))
        return dropout, dropout.replay(trees, dataset, scores, replay)
    if not task.parameters.averages:
        for together in [trees] if replay is None else [(tree,) for tree in trees]:
            if replay is not None:
                replay(scores)
            add_trees(dataset, together, scores)
    return None, []


def _gathered_sums(tree_sums: TreeSums, segments: Sequence[Segment], exchange: RankExchange) -> TreeSums:
    """The same for the rows of all ranks: where columns are split, a rank can send its own rows down a tree only."""
    in_order = gatherer(segments, exchange)
    return lambda trees: in_order(tree_sums(trees))


def _grower(task: RankTask, dataset: Dataset, n_outputs: int, workers: Workers, exchange: RankExchange) -> RoundGrower:
    parameters = task.parameters
    if task.tree_learner == "data":
        n_at_once = trees_at_once(dataset.plan, parameters, n_outputs, task.n_total_rows, exchange.n_ranks)
        together = DataParallel(dataset, parameters, workers, exchange, n_at_once)
        return RoundGrower(dataset, parameters, workers, together, n_at_once)
    expander: LeafExpander
    if task.tree_learner == "voting":
        expander = VotingParallel(dataset, parameters, workers, exchange, task.top_k)
    else:
        expander = FeatureParallel(dataset, parameters, workers, exchange)
    return RoundGrower(dataset, parameters, workers, expander)


def _with_counts(
    on_iteration: Callable[[CountedIteration], None], grower: RoundGrower, exchange: RankExchange
) -> Callable[[IterationReport], None]:
    """Tell with every iteration what its trees took."""

    def tell(report: IterationReport) -> None:
        n_trees = len(report.new_trees.trees)
        rounds, traffic = grower.rounds.per_tree[-n_trees:], exchange.tree_traffic[-n_trees:]
        counts = tuple(
            TreeCounts(tree_rounds, sent.bytes_sent, sent.wait_seconds)
            for tree_rounds, sent in zip(rounds, traffic, strict=True)
        )
        on_iteration(CountedIteration(**vars(report), counts=counts))

    return tell


def _report(task: RankTask, grower: RoundGrower, exchange: RankExchange) -> RankReport:
    return RankReport(
        tree_learner=task.tree_learner,
        rank=exchange.rank,
        n_ranks=exchange.n_ranks,
        rounds_per_tree=grower.rounds.per_tree,
        bytes_per_tree=[traffic.bytes_sent for traffic in exchange.tree_traffic],
        wait_per_tree=[traffic.wait_seconds for traffic in exchange.tree_traffic],
        splits_in_vain=grower.rounds.splits_in_vain,
        bytes_sent=exchange.traffic.bytes_sent,
        wait_seconds=exchange.traffic.wait_seconds,
        calls=exchange.traffic.calls,
    )
