"""What nodes would give out as leaves, where that is more than a Newton step: within bounds, or drawn to the parent.

A split at a constrained feature bounds what the nodes below may give out, on either side. Bounds and what the parent
gives out follow from the way to a node alone, so that it does not matter when a leaf is expanded. They say what a
split is worth; what finished leaves give out is put in order by `put_in_order`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, inlined, kernel
from dmlgbm.gbdt.kernels.layout import BOUNDS_IN_THE_MIDDLE, RecordArray, TreeNodes

# l1, l2, bounds, what the parent gives out, and rules[0].smoothing.
Frame: TypeAlias = tuple[float, float, float, float, float, float]
# Halvings of the range that two sides of a split have in common: what is left is less than its last bits.
_HALVINGS = 64


@inlined
def output_within(gradient: float, hessian: float, count: float, frame: Frame) -> float:
    """What a leaf with these sums gives out: -T(G) / (H + l2), drawn to what its parent does, or the nearer bound."""
    l1, l2, lower, upper, parent_output, smoothing = frame
    step = max(abs(gradient) - l1, 0.0) / (hessian + l2)
    own_share = count / (count + smoothing)
    output = (-step if gradient > 0.0 else step) * own_share + parent_output * (1.0 - own_share)
    return min(max(output, lower), upper)


@inlined
def score_of_output(gradient: float, hessian: float, l1: float, l2: float, output: float) -> float:
    """Twice the loss that a leaf with these sums removes if it gives out this value; `score` for the best one."""
    return -(2.0 * gradient * output + (hessian + l2) * output * output) - 2.0 * l1 * abs(output)


@inlined
def node_output(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """What a node would give out as a leaf; the root has no parent to be drawn to."""
    smoothing = rules[0].smoothing if nodes[node].depth > 0 else 0.0
    bounds = nodes[node].lower, nodes[node].upper
    frame = (rules[0].l1, rules[0].l2, bounds[0], bounds[1], nodes[node].parent_output, smoothing)
    return output_within(float(nodes[node].gradient), float(nodes[node].hessian), float(nodes[node].count), frame)


@inlined
def frame_of_children(rules: RecordArray, nodes: RecordArray, node: int, more_l2: float) -> Frame:
    """What decides, beside their sums, what the children of a node would give out."""
    own = node_output(rules, nodes, node)
    return (rules[0].l1, rules[0].l2 + more_l2, nodes[node].lower, nodes[node].upper, own, rules[0].smoothing)


@inlined
def score_as_leaf(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """The score of a node as it is, by what it would give out."""
    gradient, hessian = float(nodes[node].gradient), float(nodes[node].hessian)
    return score_of_output(gradient, hessian, rules[0].l1, rules[0].l2, node_output(rules, nodes, node))


@inlined
def score_of_children(
    left: float,
    left_hessian: float,
    left_count: float,
    right: float,
    right_hessian: float,
    right_count: float,
    frame: Frame,
    direction: float,
) -> float:
    """The score of both sides together by what they would give out; minus infinity against the direction."""
    left_output = output_within(left, left_hessian, left_count, frame)
    right_output = output_within(right, right_hessian, right_count, frame)
    both = score_of_output(left, left_hessian, frame[0], frame[1], left_output) + score_of_output(
        right, right_hessian, frame[0], frame[1], right_output
    )
    return both if direction * (right_output - left_output) >= 0.0 else -np.inf


@inlined
def rated(gain: float, least: float, factor: float) -> float:
    """A gain as it counts at its feature, or less than nothing if it is too small to be a split."""
    return gain * factor if gain > least else -1.0


@kernel
def enter_frames(rules: RecordArray, tree: TreeNodes, node: int, left: int) -> None:
    """Enter what the children of a node's best split, whose sums are known, may give out.

    At a constrained feature they are bounded by the middle between what the two would give out, or, looser, each by
    what the other one would.
    """
    rules, tree = borrowed((rules, tree))
    nodes, right = tree.nodes, left + 1
    frame = frame_of_children(rules, nodes, node, 0.0)
    for child in range(left, right + 1):
        nodes[child].lower, nodes[child].upper, nodes[child].parent_output = frame[2], frame[3], frame[4]
    direction = tree.feature_rules[nodes[node].feature].direction
    if direction == 0:
        return
    for_left = output_within(
        float(nodes[right].gradient), float(nodes[right].hessian), float(nodes[right].count), frame
    )
    for_right = output_within(float(nodes[left].gradient), float(nodes[left].hessian), float(nodes[left].count), frame)
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
