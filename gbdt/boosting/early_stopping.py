"""When to stop: each watched metric remembers its best iteration, and the first one that waits too long ends the run.

As in LightGBM, every metric of every watched set has a patience of its own. The iteration that counts is the best one
of the metric that ended the run, and of the first one watched where none did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.parameters import TrainParameters


@dataclass(frozen=True)
class _Best:
    merit: float
    iteration: int
    evaluations: list[Evaluation]  # all that was measured then


class EarlyStopping:
    """What has been best so far, by (evaluation set, metric)."""

    def __init__(self, parameters: TrainParameters) -> None:
        if parameters.early_stopping_rounds is None:
            raise ValueError("early_stopping_rounds is None: nobody asked to stop early")
        self._patience = parameters.early_stopping_rounds
        self._min_delta = parameters.early_stopping_min_delta
        self._first_metric_only = parameters.first_metric_only
        self._sets = parameters.early_stopping_sets
        self._bests: dict[tuple[str, str], _Best] = {}
        self._ended_by: tuple[str, str] | None = None

    @property
    def best_iteration(self) -> int | None:
        best = self._decisive()
        return None if best is None else best.iteration

    @property
    def best_score(self) -> dict[str, dict[str, float]] | None:
        """Everything that was measured at the best iteration, by set, then metric."""
        best = self._decisive()
        if best is None:
            return None
        scores: dict[str, dict[str, float]] = {}
        for evaluation in best.evaluations:
            scores.setdefault(evaluation.set_name, {})[evaluation.metric] = evaluation.value
        return scores

    def note(self, iteration: int, evaluations: list[Evaluation]) -> None:
        """Remember what is best; the model that training goes on from is noted before its first new iteration."""
        for watched in self._watched(evaluations):
            key = watched.set_name, watched.metric
            merit = _merit(watched)
            best = self._bests.get(key)
            if best is None or merit > best.merit + self._min_delta:
                self._bests[key] = _Best(merit, iteration, evaluations)

    def update(self, iteration: int, evaluations: list[Evaluation]) -> str | None:
        """The reason to stop now, if there is one."""
        self.note(iteration, evaluations)
        for key, best in self._bests.items():
            if iteration - best.iteration >= self._patience:
                self._ended_by = key
                return f"{key[0]} {key[1]} has not improved for {self._patience} iterations"
        return None

    def _watched(self, evaluations: list[Evaluation]) -> list[Evaluation]:
        chosen = [each for each in evaluations if self._sets is None or each.set_name in self._sets]
        if self._first_metric_only:
            chosen = [each for each in chosen if each.metric == evaluations[0].metric]
        return chosen

    def _decisive(self) -> _Best | None:
        key = self._ended_by or next(iter(self._bests), None)
        return None if key is None else self._bests[key]


def _merit(evaluation: Evaluation) -> float:
    """The higher, the better. A metric that is not a number is worse than any that is."""
    if math.isnan(evaluation.value):
        return -math.inf
    return evaluation.value if evaluation.higher_is_better else -evaluation.value
