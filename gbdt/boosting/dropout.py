"""Boosting with dropout (DART): an iteration leaves some earlier ones out, and afterwards all of these weigh less.

Trees are kept as they were grown. Which iterations are left out and what each of them weighs by now follow from the
parameters alone, so a model multiplies the values of a tree once, by its weight at that time, and a run can be resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.boosting.binned_scores import add_trees
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key, random_shares

FloatArray = npt.NDArray[np.float64]
TreeSums = Callable[[Sequence[Tree]], FloatArray]


@dataclass(frozen=True)
class DropStep:
    """What one iteration does to the earlier ones."""

    left_out: tuple[int, ...] = ()  # iterations of this fit
    factor: float = 1.0  # on their weights
    weight: float = 1.0  # of the new iteration


class TreeWeights:
    """What the iterations of a fit weigh so far; those of a model that it goes on from stay as they are."""

    def __init__(self, parameters: TrainParameters, n_before: int) -> None:
        self.weights: list[float] = []
        self._parameters = parameters
        self._n_before = n_before

    def next_step(self) -> DropStep:
        """What the next iteration leaves out."""
        parameters, n_trees = self._parameters, len(self.weights)
        seed = parameters.seed if parameters.drop_seed is None else parameters.drop_seed
        shares = random_shares(random_key(seed, Purpose.DROPPED_ITERATIONS, self._n_before + n_trees), n_trees + 1)
        if n_trees == 0 or shares[n_trees] < parameters.skip_drop:
            return DropStep()
        rate = parameters.drop_rate
        if parameters.max_drop > 0:
            rate = min(rate, parameters.max_drop / n_trees)
        rates = np.full(n_trees, rate)
        if not parameters.uniform_drop:
            weights = np.array(self.weights)
            if parameters.learning_rates is not None:
                weights *= parameters.learning_rates[:n_trees]
            rates *= weights * (n_trees / math.fsum(weights))
        left_out = np.flatnonzero(shares[:n_trees] < rates).tolist()
        if parameters.max_drop > 0:
            left_out = left_out[: parameters.max_drop]
        if not left_out:
            return DropStep()
        n_left_out = len(left_out)
        more = parameters.rate_of(n_trees) if parameters.xgboost_dart_mode else 1.0
        return DropStep(tuple(left_out), n_left_out / (n_left_out + more), 1.0 / (n_left_out + more))

    def take(self, step: DropStep) -> None:
        """The iteration is made."""
        for iteration in step.left_out:
            self.weights[iteration] *= step.factor
        self.weights.append(step.weight)


class Dropout:
    """The dropout of one run; `tree_sums` gives what some trees together add to the scores [output, row] of its rows.

    Scores are taken off and brought back as one sum, so that they have the same bits on any ranks and when replayed.
    """

    def __init__(self, parameters: TrainParameters, n_before: int, tree_sums: TreeSums) -> None:
        self.tree_sums = tree_sums
        self.changes: list[Tree] = []  # what the last iteration added to any row's score
        self._weights = TreeWeights(parameters, n_before)
        self._iterations: list[Sequence[Tree]] = []  # as they were grown
        self._step = DropStep()
        self._taken_off: FloatArray | None = None

    def begin(self, scores: FloatArray) -> float:
        """Take what the next iteration leaves out off the scores; what its trees are to weigh."""
        step = self._step = self._weights.next_step()
        self._taken_off = None
        if step.left_out:
            self._taken_off = self.tree_sums(self._scaled(1.0))
            scores -= self._taken_off
        return step.weight

    def end(self, new_trees: Sequence[Tree], scores: FloatArray) -> None:
        """The new trees are in the scores: bring back what was left out, with less weight."""
        step = self._step
        if self._taken_off is not None:
            self._taken_off *= step.factor
            scores += self._taken_off
        self.changes = [*self._scaled(step.factor - 1.0), *(scaled(tree, step.weight) for tree in new_trees)]
        self._weights.take(step)
        self._iterations.append(new_trees)

    def replay(
        self,
        trees: Sequence[Tree],
        dataset: Dataset,
        scores: FloatArray,
        follow: Callable[[FloatArray], None] | None = None,
    ) -> list[Sequence[Tree]]:
        """Go through finished iterations over these rows; what each of them added to any row's score.

        `follow` is given the scores at which each was grown.
        """
        n_outputs = len(scores)
        changes: list[Sequence[Tree]] = []
        for first in range(0, len(trees), n_outputs):
            new_trees = trees[first : first + n_outputs]
            weight = self.begin(scores)
            if follow is not None:
                follow(scores)
            add_trees(dataset, [scaled(tree, weight) for tree in new_trees], scores)
            self.end(new_trees, scores)
            changes.append(self.changes)
        return changes

    def weighted(self, trees: Sequence[Tree]) -> list[Tree]:
        """The trees of the run with the values that they have by now."""
        return _weighted(trees, self._weights.weights)

    def _scaled(self, factor: float) -> list[Tree]:
        weights = self._weights.weights
        return [
            scaled(tree, weights[iteration] * factor)
            for iteration in self._step.left_out
            for tree in self._iterations[iteration]
        ]


def settled_trees(trees: Sequence[Tree], n_outputs: int, parameters: TrainParameters, n_before: int) -> Sequence[Tree]:
    """The trees of a fit, given as they were grown, with the values that they have in the model."""
    if parameters.boosting_type != "dart":
        return trees
    weights = TreeWeights(parameters, n_before)
    for _ in range(len(trees) // n_outputs):
        weights.take(weights.next_step())
    return _weighted(trees, weights.weights)


def sums_over(dataset: Dataset, n_outputs: int) -> TreeSums:
    """What trees add to the scores of the rows of a data set."""

    def tree_sums(trees: Sequence[Tree]) -> FloatArray:
        sums = np.zeros((n_outputs, dataset.n_rows))
        add_trees(dataset, trees, sums)
        return sums

    return tree_sums


def scaled(tree: Tree, factor: float) -> Tree:
    """The tree with its values multiplied."""
    return tree if factor == 1.0 else replace(tree, leaf_value=tree.leaf_value * factor)


def _weighted(trees: Sequence[Tree], weights: Sequence[float]) -> list[Tree]:
    n_outputs = len(trees) // max(len(weights), 1)
    return [scaled(tree, weights[number // n_outputs]) for number, tree in enumerate(trees)]
