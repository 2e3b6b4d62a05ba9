"""Leaf values in the order that monotone constraints ask for.

A split at a constrained feature bounds what the nodes below may give out, on either side. The bounds of a node follow
from the way to it alone, so that it does not matter when a leaf is expanded, and splits are rated by what is within
them. Bounds say what a split is worth; what finished leaves give out is put in order by `put_in_order`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, inlined, kernel
from dmlgbm.gbdt.kernels.layout import BOUNDS_IN_THE_MIDDLE, RecordArray, TreeNodes

# Halvings of the range that two sides of a split have in common: what is left is less than its last bits.
_HALVINGS = 64


@inlined
def output_within(gradient: float, hessian: float, l1: float, l2: float, lower: float, upper: float) -> float:
    """The best value of a leaf with these sums among those within bounds: -T(G) / (H + l2), or the nearer bound."""
    step = max(abs(gradient) - l1, 0.0) / (hessian + l2)
    return min(max(-step if gradient > 0.0 else step, lower), upper)


@inlined
def score_of_output(gradient: float, hessian: float, l1: float, l2: float, output: float) -> float:
    """Twice the loss that a leaf with these sums removes if it gives out this value; `score` for the best one."""
    return -(2.0 * gradient * output + (hessian + l2) * output * output) - 2.0 * l1 * abs(output)


@inlined
def node_output(rules: RecordArray, nodes: RecordArray, node: int, lower: float, upper: float) -> float:
    """What a node would give out as a leaf within these bounds."""
    gradient, hessian = float(nodes[node].gradient), float(nodes[node].hessian)
    return output_within(gradient, hessian, rules[0].l1, rules[0].l2, lower, upper)


@inlined
def bounded_score(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """The score of a node as it is, within its bounds."""
    output = node_output(rules, nodes, node, nodes[node].lower, nodes[node].upper)
    gradient, hessian = float(nodes[node].gradient), float(nodes[node].hessian)
    return score_of_output(gradient, hessian, rules[0].l1, rules[0].l2, output)


@inlined
def bounded_split_score(
    left: float,
    left_hessian: float,
    right: float,
    right_hessian: float,
    l1: float,
    l2: float,
    bounds: tuple[float, float],
    direction: float,
) -> float:
    """The score of both sides together within the bounds of their node; minus infinity against the direction."""
    lower, upper = bounds
    left_output = output_within(left, left_hessian, l1, l2, lower, upper)
    right_output = output_within(right, right_hessian, l1, l2, lower, upper)
    both = score_of_output(left, left_hessian, l1, l2, left_output) + score_of_output(
        right, right_hessian, l1, l2, right_output
    )
    return both if direction * (right_output - left_output) >= 0.0 else -np.inf


@kernel
def bound_children(rules: RecordArray, tree: TreeNodes, node: int, left: int) -> None:
    """Enter the bounds of both children of a node's best split, whose sums are known.

    In the middle between what the children would give out, or, looser, at what the other one would.
    """
    rules, tree = borrowed((rules, tree))
    nodes, right = tree.nodes, left + 1
    lower, upper = nodes[node].lower, nodes[node].upper
    for child in range(left, right + 1):
        nodes[child].lower, nodes[child].upper = lower, upper
    direction = tree.feature_rules[nodes[node].feature].direction
    if direction == 0:
        return
    for_left = node_output(rules, nodes, right, lower, upper)
    for_right = node_output(rules, nodes, left, lower, upper)
    if rules[0].bounds == BOUNDS_IN_THE_MIDDLE:
        middle = 0.5 * (for_left + for_right)
        for_left, for_right = middle, middle
    if direction > 0:
        nodes[left].upper, nodes[right].lower = for_left, for_right
    else:
        nodes[left].lower, nodes[right].upper = for_left, for_right


@inlined
def meeting_point(
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    first: int,
    middle: int,
    beyond: int,
    direction: float,
) -> tuple[float, float]:
    """Where values on both sides must meet, times the direction, with least weighted squared change; and whether."""
    highest, lowest = -np.inf, np.inf
    for leaf in range(first, middle):
        highest = max(highest, direction * values[leaf])
    for leaf in range(middle, beyond):
        lowest = min(lowest, direction * values[leaf])
    if not highest > lowest:
        return 0.0, 0.0
    for _ in range(_HALVINGS):
        point = lowest + 0.5 * (highest - lowest)
        pull = 0.0
        for leaf in range(first, middle):
            pull += weights[leaf] * max(direction * values[leaf] - point, 0.0)
        for leaf in range(middle, beyond):
            pull -= weights[leaf] * max(point - direction * values[leaf], 0.0)
        if pull > 0.0:
            lowest = point
        else:
            highest = point
    return lowest, 1.0


@kernel
def put_in_order(
    tree: TreeNodes,
    splits: npt.NDArray[np.int64],
    leaves: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    ranges: npt.NDArray[np.int64],
) -> None:
    """Change the values of leaves so that every split at a constrained feature has the lower ones on the right side.

    Splits come in the order they were made and are settled from the last to the first. A cut-off that holds for all
    leaves on one side keeps every order among them, so what is settled stays so. `ranges` is room for the first and
    the last leaf of every node.
    """
    nodes = tree.nodes
    for leaf in range(leaves.size):
        ranges[leaves[leaf], 0], ranges[leaves[leaf], 1] = leaf, leaf + 1
    for k in range(splits.size - 1, -1, -1):
        node = splits[k]
        left = nodes[node].left
        first, middle, beyond = ranges[left, 0], ranges[left, 1], ranges[left + 1, 1]
        ranges[node, 0], ranges[node, 1] = first, beyond
        direction = float(tree.feature_rules[nodes[node].feature].direction)
        if direction == 0.0:
            continue
        point, is_needed = meeting_point(values, weights, first, middle, beyond, direction)
        if is_needed > 0.0:
            for leaf in range(first, middle):
                values[leaf] = direction * min(direction * values[leaf], point)
            for leaf in range(middle, beyond):
                values[leaf] = direction * max(direction * values[leaf], point)
