"""What the client knows of a training run: the finished iterations, the user's callbacks, when to stop.

Iterations arrive here in order, each exactly once however often ranks are restarted, so callbacks run once and
see the run as a local one. The model is put together from what arrived: an iteration that nobody reported is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.dropout import settled_trees
from dmlgbm.gbdt.boosting.early_stopping import EarlyStopping
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.callbacks import Callback, Evaluation, TrainingState
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.fit_report import History, TreeCounts
from dmlgbm.gbdt.ranks.rank import Checkpoint, CountedIteration


class RunSoFar:
    """The run so far. `on_commit` is called with every checkpoint."""

    def __init__(
        self,
        parameters: TrainParameters,
        initial_model: Booster | None,
        callbacks: Sequence[Callback],
        on_commit: Callable[[Checkpoint], None] | None = None,
    ) -> None:
        self.checkpoint = Checkpoint()
        self.tree_counts: list[TreeCounts] = []
        self.stop_reason: str | None = None
        self._parameters = parameters
        self._initial_trees = () if initial_model is None else initial_model.trees
        self._n_before = 0 if initial_model is None else initial_model.n_iterations
        self._callbacks = callbacks
        self._on_commit = on_commit
        self._stopping = None if parameters.early_stopping_rounds is None else EarlyStopping(parameters)
        self.finished = False

    @property
    def n_iterations(self) -> int:
        return len(self.checkpoint.evaluations)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same run; its iterations were seen by the callbacks of that time."""
        self.checkpoint = checkpoint
        self._note_start()
        for number, evaluations in enumerate(checkpoint.evaluations):
            self.stop_reason = self._early_stop(number + 1, list(evaluations))
        self.finished = self.stop_reason is not None or self.n_iterations == self._parameters.n_estimators

    def add(self, report: CountedIteration) -> None:
        """One more iteration, or one that is known already."""
        if self.finished or report.iteration <= self.n_iterations:
            return
        if report.iteration != self.n_iterations + 1:
            raise RuntimeError(f"iteration {report.iteration} was reported after iteration {self.n_iterations}")
        self.checkpoint = self.checkpoint.extended(report)
        if self.n_iterations == 1:
            self._note_start()
        self.tree_counts += report.counts
        if self._on_commit is not None:
            self._on_commit(self.checkpoint)
        state = TrainingState(
            report.iteration, self._parameters.n_estimators, list(report.evaluations), self.booster_so_far
        )
        state.stop_reason = self._early_stop(report.iteration, state.evaluations)
        for callback in self._callbacks:
            callback(state)
        self.stop_reason = state.stop_reason
        self.finished = state.stop_reason is not None or report.iteration == self._parameters.n_estimators

    def booster_so_far(self) -> Booster:
        """The model with all finished iterations."""
        new = self.checkpoint.trees
        if new is None:
            raise RuntimeError("no iteration is finished yet")
        trees = settled_trees(new.trees, new.n_outputs, self._parameters, self._n_before)
        return replace(new, trees=(*self._initial_trees, *trees))

    def history(self) -> History:
        """What was measured after each iteration."""
        history: History = {}
        for evaluations in self.checkpoint.evaluations:
            for set_name, metric, value, _ in evaluations:
                history.setdefault(set_name, {}).setdefault(metric, []).append(value)
        return history

    def result(self) -> TrainingResult:
        """The model and how it came about, as a local run tells it."""
        best_iteration, best_score = None, None
        if self._stopping is not None:
            best_iteration, best_score = self._stopping.best_iteration, self._stopping.best_score
        return TrainingResult(self.booster_so_far(), self.history(), best_iteration, best_score, self.stop_reason)

    def _note_start(self) -> None:
        """The model that training goes on from may stay the best one."""
        if self._stopping is not None and self.checkpoint.at_start:
            self._stopping.note(self._n_before, list(self.checkpoint.at_start))

    def _early_stop(self, iteration: int, evaluations: list[Evaluation]) -> str | None:
        if self._stopping is None or not evaluations:
            return None
        return self._stopping.update(self._n_before + iteration, evaluations)


class NoReports:
    """Follows ranks that tell of no iterations."""

    stop_reason: str | None = None

    def add(self, report: CountedIteration) -> None:
        """There is none."""
        raise RuntimeError(f"iteration {report.iteration} was reported of ranks that grow no trees")
