"""Passes that the threads of a grower make give what the passes of the loop give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.growth.grower import TreeGrower
from dmlgbm.gbdt.growth.leaf_fitting import newton_steps_of, step_rules
from dmlgbm.gbdt.growth.quantisation import quantise
from dmlgbm.gbdt.growth.row_arrays import row_arrays
from dmlgbm.gbdt.growth.tree_request import TreeRequest
from dmlgbm.gbdt.objectives import ObjectiveSettings, objective_for
from dmlgbm.gbdt.objectives.protocol import NO_LARGEST_STEP
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.threads import Workers

N_ROWS = 70_001  # two threads, and parts of different sizes


def made_table(generator: np.random.Generator) -> tuple[Table, npt.NDArray[np.float64]]:
    values = generator.normal(size=(3, N_ROWS))
    columns = tuple(NumericColumn(column) for column in values)
    return Table(columns, N_ROWS), (values[0] * values[1] > 0.0).astype(np.float64)


OBJECTIVES = ["regression", "binary", "poisson", "huber", "expectile", "fair", "logcosh", "tweedie", "gamma", "focal"]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("in_bag", [False, True])
def test_passes_of_a_grower_are_those_of_the_loop(objective: str, n_threads: int, weighted: bool, in_bag: bool) -> None:
    generator = np.random.default_rng(3)
    table, target = made_table(generator)
    target += objective == "gamma"
    weight = generator.uniform(0.5, 2.0, N_ROWS) if weighted else None
    loss = objective_for(ObjectiveSettings(objective), target=target, weight=weight, group_starts=None)
    parameters = TrainParameters(num_leaves=15)
    bag = np.arange(0, N_ROWS, 3, dtype=np.uint32) if in_bag else None
    with Workers(n_threads) as workers:
        dataset = bin_table(table, BinningParameters(), workers)
        own = row_arrays(loss, generator.normal(size=(1, N_ROWS)), parameters)
        with TreeGrower(dataset, parameters, workers, own) as grower:
            largest = grower.derive()
            expected = row_arrays(loss, own.scores.copy(), parameters)
            loss.compute_gradients(expected.scores, expected.gradients, expected.hessians, workers, np.uint64(0))
            np.testing.assert_array_equal(own.gradients, expected.gradients)
            np.testing.assert_array_equal(own.hessians, expected.hessians)
            assert largest == (abs(expected.gradients).max(), abs(expected.hessians).max(initial=0.0))

            made = [
                quantise(
                    own.gradients[0], own.hessians[0], precision="auto", segments=whole_table(N_ROWS), seed=1, tree=0,
                    workers=workers, buffer=buffer, largest_here=known, write=write,
                )
                for buffer, known, write in ((None, None, True), (grower.words[0], largest, in_bag))
            ]  # fmt: skip
            steps = step_rules(parameters, 0.25)
            steps["gradient_scale"], steps["hessian_scale"] = made[1].fine_gradient_scale, made[1].fine_hessian_scale
            before = own.gradients.copy(), own.hessians.copy(), own.scores.copy()
            grown = grower.grow(TreeRequest(0, 0, made[1], steps), bag)
            words = slice(0, len(made[0].words))
            np.testing.assert_array_equal(grower.words[0][words], made[0].words)
            assert len(grown.splits) > 0

            labels = np.full(N_ROWS, grown.no_leaf)
            for leaf, (start, count) in enumerate(zip(*grown.leaf_ranges(), strict=True)):
                labels[grown.rows[start : start + count]] = leaf
            np.testing.assert_array_equal(grown.labels, labels)
            units = np.floor(before[0][0].astype(np.float64) * made[0].fine_gradient_scale + 0.5).astype(np.int64)
            n_leaves = len(grown.leaves)
            of_leaves = [int(units[labels == leaf].sum()) for leaf in range(n_leaves)]
            assert grown.sums is None or grown.sums[:, 0].tolist() == of_leaves

            # Without a bag the tree has been added already, in the turn that grew it.
            assert (grown.added is None) == in_bag
            values = newton_steps_of(replace(grown, sums=None), before[0][0], before[1][0], steps, workers)
            assert abs(values.values).max() == 0.25 * parameters.learning_rate
            if grown.added is None:
                grower.label_others(grown, bag)
                grower.add_to_scores(grown, 0, values.values, own.scores[0])
            else:
                np.testing.assert_array_equal(grown.added.values, values.values)
                np.testing.assert_array_equal(grown.added.hessians, values.hessians)
            np.testing.assert_array_equal(own.scores[0], before[2][0] + values.values[grown.labels])

            # The same pass has derived the rows for the next tree.
            loss.compute_gradients(own.scores, expected.gradients, expected.hessians, workers, np.uint64(0))
            np.testing.assert_array_equal(own.gradients, expected.gradients)
            np.testing.assert_array_equal(own.hessians, expected.hessians)
            assert grower.derive() == (abs(expected.gradients).max(), abs(expected.hessians).max(initial=0.0))


def test_a_tree_that_is_chance_is_not_added() -> None:
    generator = np.random.default_rng(4)
    table, target = made_table(generator)
    loss = objective_for(ObjectiveSettings("binary"), target=target, weight=None, group_starts=None)
    parameters = TrainParameters(num_leaves=15)
    with Workers(2) as workers:
        dataset = bin_table(table, BinningParameters(), workers)
        own = row_arrays(loss, np.zeros((1, N_ROWS)), parameters)
        with TreeGrower(dataset, parameters, workers, own) as grower:
            largest = grower.derive()
            quantised = quantise(
                own.gradients[0], own.hessians[0], precision="auto", segments=whole_table(N_ROWS), seed=1, tree=0,
                workers=workers, buffer=grower.words[0], largest_here=largest, write=False,
            )  # fmt: skip
            for least, is_added in ((np.inf, False), (0.0, True)):
                steps = step_rules(parameters, NO_LARGEST_STEP)
                steps["gradient_scale"], steps["hessian_scale"] = (
                    quantised.fine_gradient_scale,
                    quantised.fine_hessian_scale,
                )
                steps["least_root_gain"] = least
                grown = grower.grow(TreeRequest(0, 0, quantised, steps), None)
                assert len(grown.splits) > 0
                assert own.scores.any() == is_added
