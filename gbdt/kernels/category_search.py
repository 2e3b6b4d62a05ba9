"""The best set of categories that goes left, for one categorical feature of one node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, inlined, kernel
from dmlgbm.gbdt.kernels.layout import Buffers, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.output_bounds import frame_of_children, rated, score_as_leaf, score_of_children
from dmlgbm.gbdt.kernels.sorting import order_ends_by_key
from dmlgbm.gbdt.kernels.split_scores import score_to_beat, split_score, unpacked
from dmlgbm.gbdt.kernels.threshold_search import drawn, least_gain_by_outputs


@inlined
def split_up(packing: RecordArray, packed: bool, n_bins: int, sums: npt.NDArray[np.int64]) -> None:
    """From running sums in any form to the gradient, hessian and count of each bin in sums[1] to [3]."""
    for b in range(n_bins - 1, -1, -1):
        if packed:
            before = sums[0, b - 1] if b > 0 else np.int64(0)
            sums[1, b], sums[2, b], sums[3, b] = unpacked(packing, sums[0, b] - before)
        elif b > 0:
            for plane in range(1, 4):
                sums[plane, b] -= sums[plane, b - 1]


@kernel
def search_categories(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    feature: int,
    buffers: Buffers,
    tree: TreeNodes,
    node: int,
) -> None:
    """Replace the node's best split if a set of categories against the rest gains more.

    Few categories: each one alone. Many: in the order of their mean gradient the best set is a prefix, from
    one end or the other. Rare categories stay right, and prefixes are short, because the order of small sums
    is mostly noise. A single category, or length of either prefix, is tried where it is drawn.
    """
    layout, packing, rules, buffers, tree = borrowed((layout, packing, rules, buffers, tree))
    nodes, categories = tree.nodes, tree.categories
    gradients, hessians, counts = buffers.sums[1], buffers.sums[2], buffers.sums[3]
    ratio, order = buffers.gains, buffers.order
    n_bins = layout[feature].bins
    split_up(packing, packed, n_bins, buffers.sums)
    one_against_rest = n_bins <= rules[0].max_one_against_rest
    least_rows = 1 if one_against_rest else rules[0].category_min_rows
    n_used = np.int64(0)
    for b in range(n_bins):
        if counts[b] >= least_rows:
            ratio[b] = float(gradients[b]) / (float(hessians[b]) + rules[0].category_smoothing)
            order[n_used] = b
            n_used += 1
    longest = n_used if one_against_rest else min(rules[0].max_category_threshold, (n_used + 1) // 2)
    if not one_against_rest:
        order_ends_by_key(ratio, order, n_used, longest)
    min_group = 0 if one_against_rest else rules[0].min_rows_per_group
    l1 = rules[0].l1
    more_l2 = 0.0 if one_against_rest else rules[0].category_l2
    l2, by_gain = rules[0].l2 + more_l2, rules[0].by_gain == 1
    frame, unsplit, least, factor = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0
    if by_gain:
        frame, unsplit = frame_of_children(rules, nodes, node, more_l2), score_as_leaf(rules, nodes, node)
        least, factor = least_gain_by_outputs(rules, nodes, node), tree.feature_rules[feature].gain_factor
    at_random = rules[0].at_random == 1
    only = drawn(rules, nodes, node, feature, longest) if at_random else np.int64(0)
    for direction in range(1 if one_against_rest else 2):
        gradient, hessian, count, group = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for k in range(longest):
            if one_against_rest:
                gradient, hessian, count, group = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
            b = order[k] if direction == 0 else order[n_used - 1 - k]
            gradient += gradients[b]
            hessian += hessians[b]
            count += counts[b]
            group += counts[b]
            if at_random and k != only:
                continue
            right_count, right_hessian = node_sums[2] - count, node_sums[1] - hessian
            if count < rules[0].min_rows or hessian < rules[0].min_hessian or group < min_group:
                continue
            if right_count < max(rules[0].min_rows, min_group) or right_hessian < rules[0].min_hessian:
                continue
            group = np.int64(0)
            right = float(node_sums[0] - gradient)
            if by_gain:
                gain = score_of_children(
                    float(gradient), float(hessian), float(count), right, float(right_hessian), float(right_count),
                    frame, 0.0,
                )  # fmt: skip
                gain = rated(gain - unsplit, least, factor)
            else:
                gain = split_score(float(gradient), float(hessian), right, float(right_hessian), l1, l2)
            if gain > score_to_beat(nodes, node, feature):
                nodes[node].gain = gain
                nodes[node].feature = feature
                nodes[node].bin = -1
                nodes[node].left_gradient, nodes[node].left_hessian, nodes[node].left_count = gradient, hessian, count
                nodes[node].missing_left = 0
                first = k if one_against_rest else 0
                nodes[node].n_categories = k + 1 - first
                for j in range(first, k + 1):
                    categories[node, j - first] = order[j] if direction == 0 else order[n_used - 1 - j]
