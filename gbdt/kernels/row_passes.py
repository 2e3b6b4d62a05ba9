"""Passes over all rows, made by the threads that grow trees: to hand work over takes microseconds there, 60 in Python.

Threads take ranges of rows. What a pass adds up are integers or maxima, one set for each range, so that neither the
number of ranges nor who takes them matters.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, exchange, fetch, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.gradients import loss_gradients
from dmlgbm.gbdt.kernels.layout import RowPasses, TreeSpace
from dmlgbm.gbdt.kernels.leaf_values import add_to_rows, newton_steps, sum_leaves
from dmlgbm.gbdt.kernels.quantise import largest_of
from dmlgbm.gbdt.kernels.shared_state import (
    EVERY_ROW,
    LABELS_DONE,
    LABELS_TAKEN,
    LEAVES_LISTED,
    N_CHOSEN,
    N_ROWS,
    N_THREADS,
    N_THROUGH,
    OUTPUT,
    ROW_PARTS_TAKEN,
    STEPS_TAKEN,
    STEPS_WRITTEN,
    SUMS_DONE,
    SUMS_TAKEN,
    wait_for_change,
)
from dmlgbm.gbdt.kernels.tree_description import list_leaves

# Rows whose scores, targets and derivatives stay in the second cache level between two steps of a pass.
_ROWS_IN_CACHE = 4096


@inlined
def derive_rows(passes: RowPasses, start: int, stop: int, largest: npt.NDArray[np.float64]) -> None:
    """Write the derivatives of rows start..stop, and raise the largest magnitudes to theirs."""
    gradients, hessians = passes.gradients[0, start:stop], passes.hessians[0, start:stop]
    score = passes.scores[0, start:stop]
    loss_gradients(passes.loss, passes.target[start:stop], passes.weight[start:stop], score, gradients, hessians)
    largest[0], largest[1] = max(largest[0], largest_of(gradients)), max(largest[1], largest_of(hessians))


@kernel
def pass_over_rows(space: TreeSpace, adds: bool, derives: bool) -> None:
    """Take ranges of rows until all are taken: add the tree to their scores, and write their derivatives."""
    space = borrowed(space)
    passes, instructions = space.passes, space.instructions
    n_rows, n_parts, output = passes.scores.shape[1], passes.largest.shape[0], instructions[OUTPUT]
    while True:
        part = fetch_and_add(instructions, ROW_PARTS_TAKEN, 1)
        if part >= n_parts:
            return
        start, stop = n_rows * part // n_parts, n_rows * (part + 1) // n_parts
        largest = passes.largest[part]
        largest[0], largest[1] = 0.0, 0.0
        for first in range(start, stop, _ROWS_IN_CACHE):
            last = min(first + _ROWS_IN_CACHE, stop)
            if adds:
                add_to_rows(passes.labels, passes.leaf_values, first, last, passes.scores[output])
            if derives:
                derive_rows(passes, first, last, largest)


@inlined
def wait_until(space: TreeSpace, position: int, wanted: int) -> None:
    """Return once a counter of the tree has reached what is wanted."""
    seen = fetch(space.shared, position)
    while seen < wanted:
        wait_for_change(space.shared, position, seen)
        seen = fetch(space.shared, position)


@inlined
def label_range(space: TreeSpace, start: int, stop: int) -> None:
    """Label the rows at positions start..stop of the tree's rows, which stand leaf by leaf."""
    passes, nodes, rows = space.passes, space.tree.nodes, space.rows
    n_splits = space.shared[N_CHOSEN]
    if n_splits == 0 and space.instructions[EVERY_ROW] == 1:
        # The root's rows were never listed.
        for i in range(np.uint64(start), np.uint64(stop)):
            rows[i] = i
    for leaf in range(n_splits + 1):
        node = passes.leaves[leaf]
        first, last = max(start, nodes[node].start), min(stop, nodes[node].start + nodes[node].count)
        for i in range(np.uint64(first), np.uint64(max(first, last))):
            passes.labels[np.uint64(rows[i])] = leaf


@kernel
def settle_rows(space: TreeSpace) -> None:
    """Label the rows of a finished tree with their leaves, and sum their gradients by label."""
    space = borrowed(space)
    passes, shared, instructions = space.passes, space.shared, space.instructions
    n_threads, n_rows = instructions[N_THREADS], instructions[N_ROWS]
    # A thread that splits a leaf in vain still rearranges the leaf's rows.
    if fetch_and_add(shared, N_THROUGH, 1) == n_threads - 1:
        for node in range(passes.is_split.size):
            passes.is_split[node] = 0
        n_splits = shared[N_CHOSEN]
        list_leaves(
            space.tree.nodes, space.chosen[:n_splits], passes.is_split, passes.waiting, passes.leaves[: n_splits + 1]
        )
        exchange(shared, LEAVES_LISTED, 1)
    wait_until(space, LEAVES_LISTED, 1)
    part = fetch_and_add(shared, LABELS_TAKEN, 1)
    while part < n_threads:
        label_range(space, n_rows * part // n_threads, n_rows * (part + 1) // n_threads)
        fetch_and_add(shared, LABELS_DONE, 1)
        part = fetch_and_add(shared, LABELS_TAKEN, 1)
    wait_until(space, LABELS_DONE, n_threads)
    n_rows = passes.gradients.shape[1]
    if n_rows > 0:
        sum_ranges(space, n_rows)


@inlined
def sum_ranges(space: TreeSpace, n_rows: int) -> None:
    """Sum the gradients of ranges of rows by label until all ranges are taken."""
    passes, shared, output = space.passes, space.shared, space.instructions[OUTPUT]
    n_parts, n_leaves = passes.sums.shape[0], passes.sums.shape[1]
    no_repeats = space.free_slots[:0]
    part = fetch_and_add(shared, SUMS_TAKEN, 1)
    while part < n_parts:
        sums = passes.sums[part]
        for leaf in range(n_leaves):
            sums[leaf, 0], sums[leaf, 1] = 0, 0
        sum_leaves(
            passes.labels, passes.gradients[output], passes.hessians[output], passes.steps[0].gradient_scale,
            passes.steps[0].hessian_scale, no_repeats, n_rows * part // n_parts, n_rows * (part + 1) // n_parts, sums,
        )  # fmt: skip
        part = fetch_and_add(shared, SUMS_TAKEN, 1)
        fetch_and_add(shared, SUMS_DONE, 1)


@inlined
def is_chance(space: TreeSpace) -> bool:
    """Whether the first split gains too little to be believed."""
    if space.shared[N_CHOSEN] == 0:
        return False
    return space.tree.nodes[space.chosen[0]].gain < space.passes.steps[0].least_root_gain


@inlined
def write_steps(space: TreeSpace) -> None:
    """Write the values and hessians of all leaves; the total of all sums goes to those of part 0."""
    passes, n_leaves = space.passes, space.shared[N_CHOSEN] + 1
    for part in range(1, passes.sums.shape[0]):
        for leaf in range(n_leaves):
            passes.sums[0, leaf, 0] += passes.sums[part, leaf, 0]
            passes.sums[0, leaf, 1] += passes.sums[part, leaf, 1]
    newton_steps(passes.sums[0], passes.steps, passes.leaf_values[:n_leaves], passes.leaf_hessians[:n_leaves])


@kernel
def add_tree(space: TreeSpace) -> None:
    """Add a tree that all rows are in to their scores, once these are summed by leaf, and derive them again."""
    space = borrowed(space)
    shared = space.shared
    wait_until(space, SUMS_DONE, space.passes.sums.shape[0])
    if exchange(shared, STEPS_TAKEN, 1) == 0:
        write_steps(space)
        exchange(shared, STEPS_WRITTEN, 1)
    wait_until(space, STEPS_WRITTEN, 1)
    if not is_chance(space):
        pass_over_rows(space, True, True)
