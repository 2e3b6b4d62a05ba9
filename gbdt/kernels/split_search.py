"""The best split of one node, over all features it may use.

Sums to the left of every bin come first (a running integer sum, the only loop with a dependency); the search for
thresholds and for sets of categories starts from them. Ties go to the lower feature, then to missing values on the
right, then to the lower bin: one total order on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.category_search import search_categories
from dmlgbm.gbdt.kernels.compiler import add_up_fours, borrowed, inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter
from dmlgbm.gbdt.kernels.layout import Buffers, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.sorting import order_by_key
from dmlgbm.gbdt.kernels.split_scores import packed_word, score, score_to_beat
from dmlgbm.gbdt.kernels.threshold_search import bar_to_pass, least_gain, search_numeric

_NO_SPLIT = -1.0

# Whether a node may be split at a feature: not this time; yes; neither it nor any node below it.
NOT_CHOSEN, USABLE, HOPELESS = 0, 1, 2


@inlined
def add_up(parts: npt.NDArray[np.int64], so_far: int, sums: npt.NDArray[np.int64]) -> int:
    """Running sums of the parts, beginning with `so_far`; returns the last."""
    n_fours = parts.size >> 2
    so_far = add_up_fours(parts, so_far, sums, n_fours)
    for b in range(np.uint64(n_fours << 2), np.uint64(parts.size)):
        so_far += parts[b]
        sums[b] = so_far
    return so_far


@inlined
def load_running_sums(
    layout: RecordArray, feature: int, plane: npt.NDArray[np.int64], rest: int, sums: npt.NDArray[np.int64]
) -> None:
    """One feature's sums up to each bin; `rest` is the sum of the bin that is not stored, if there is one."""
    n_bins, implicit, first = layout[feature].bins, layout[feature].implicit_bin, layout[feature].position
    if implicit < 0:
        add_up(plane[first : first + n_bins], np.int64(0), sums)
        return
    so_far = rest + add_up(plane[first : first + implicit], np.int64(0), sums)
    sums[implicit] = so_far
    add_up(plane[first + implicit : first + n_bins - 1], so_far, sums[implicit + 1 :])


@inlined
def sum_stored(layout: RecordArray, feature: int, plane: npt.NDArray[np.int64]) -> int:
    """The sum of all stored bins of a feature."""
    stored = plane[layout[feature].position : layout[feature].position + layout[feature].bins - 1]
    total = np.int64(0)
    for b in range(stored.size):
        total += stored[b]
    return total


@inlined
def load_bins(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    node_sums: tuple[int, int, int],
    feature: int,
    sums: npt.NDArray[np.int64],
) -> bool:
    """A feature's running sums over bins: words in sums[0], or their three parts in sums[1] to [3].

    False, and nothing loaded, if too few rows are away from the feature's usual bin for any split.
    """
    for plane in range(1 if packed else 3):
        rest = packed_word(packing, node_sums) if packed else node_sums[plane]
        if layout[feature].implicit_bin >= 0:
            away = sum_stored(layout, feature, planes[plane])
            if packed and away & packing[0].count_mask < rules[0].min_rows:
                return False
            rest -= away
        load_running_sums(layout, feature, planes[plane], rest, sums[plane if packed else plane + 1])
    return True


@inlined
def choose_features(
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    tree: TreeNodes,
    node: int,
    buffers: Buffers,
    usable: npt.NDArray[np.uint8],
) -> None:
    """Mark the features a node may use: all of them, or a sample."""
    for feature in range(usable.size):
        usable[feature] = NOT_CHOSEN
    if tree.groups.shape[1] > 0:
        choose_allowed_features(rules, features, tree, node, buffers, usable)
    else:
        mark_chosen(rules, features, rules[0].features_per_node, tree.nodes[node].path, buffers, usable)


@kernel
def choose_allowed_features(
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    tree: TreeNodes,
    node: int,
    buffers: Buffers,
    usable: npt.NDArray[np.uint8],
) -> None:
    """Mark features that are in a group with all those on the way to a node; the others are hopeless below it, too."""
    rules, features, tree, buffers, usable = borrowed((rules, features, tree, buffers, usable))
    groups, feature_groups, allowed = tree.groups, tree.feature_groups, buffers.sums[0]
    n_allowed = np.int64(0)
    for k in range(features.size):
        in_common = np.uint64(0)
        for word in range(groups.shape[1]):
            in_common |= groups[node, word] & feature_groups[features[k], word]
        if in_common != np.uint64(0):
            allowed[n_allowed] = features[k]
            n_allowed += 1
        else:
            usable[features[k]] = HOPELESS
    # The share of the features that nodes without constraints may use, to the nearest number.
    n_chosen = (2 * rules[0].features_per_node * n_allowed + features.size) // max(2 * features.size, 1)
    mark_chosen(rules, allowed[:n_allowed], max(n_chosen, 1), tree.nodes[node].path, buffers, usable)


@kernel
def inherit_groups(tree: TreeNodes, node: int, left: int) -> None:
    """The groups of a node's children: those of the node that hold the feature of its split."""
    groups, feature_groups, feature = tree.groups, tree.feature_groups, tree.nodes[node].feature
    for word in range(groups.shape[1]):
        kept = groups[node, word] & feature_groups[feature, word]
        groups[left, word], groups[left + 1, word] = kept, kept


@inlined
def mark_chosen(
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    n_chosen: int,
    path: np.uint64,
    buffers: Buffers,
    usable: npt.NDArray[np.uint8],
) -> None:
    """Mark so many of the features, those with the smallest hashes of (tree, node, feature)."""
    if n_chosen >= features.size:
        for k in range(features.size):
            usable[features[k]] = USABLE
        return
    hashes, order = buffers.gains, buffers.order
    for k in range(features.size):
        hashes[k] = float(hash_counter(rules[0].node_key ^ path, np.uint64(features[k])) >> np.uint64(11))
        order[k] = k
    order_by_key(hashes, order, features.size)
    for k in range(n_chosen):
        usable[features[order[k]]] = USABLE


@inlined
def unsplit_score(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """The score of a node as it is."""
    return score(float(nodes[node].gradient), float(nodes[node].hessian), rules[0].l1, rules[0].l2)


@inlined
def begin_search(rules: RecordArray, nodes: RecordArray, node: int) -> None:
    """Set the score that a split of the node must exceed; where gains are compared, that is nothing."""
    unsplit = unsplit_score(rules, nodes, node)
    nodes[node].gain = unsplit + least_gain(rules, nodes, node, unsplit) if rules[0].by_gain == 0 else 0.0
    nodes[node].feature = -1


@kernel
def search_features(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    usable: npt.NDArray[np.uint8],
    planes: npt.NDArray[np.int64],
    packed: bool,
    buffers: Buffers,
    tree: TreeNodes,
    node: int,
) -> None:
    """Replace the node's best split by better ones of these features, where they may be used.

    A feature without a threshold that leaves enough rows and hessian on both sides becomes hopeless: below the node
    there is less of both.
    """
    layout, packing, rules, tree = borrowed((layout, packing, rules, tree))
    features, usable, planes, buffers = borrowed((features, usable, planes, buffers))
    nodes = tree.nodes
    node_sums = (nodes[node].gradient, nodes[node].hessian, nodes[node].count)
    total, best_gain = packed_word(packing, node_sums), nodes[node].gain
    bar = bar_to_pass(rules, packing, total, score_to_beat(nodes, node, np.int64(-1)))
    for k in range(features.size):
        feature = features[k]
        if usable[feature] != USABLE:
            continue
        if not load_bins(layout, packing, rules, planes, packed, node_sums, feature, buffers.sums):
            usable[feature] = HOPELESS
            continue
        if nodes[node].gain != best_gain:
            best_gain = nodes[node].gain
            bar = bar_to_pass(rules, packing, total, score_to_beat(nodes, node, np.int64(-1)))
        if layout[feature].categorical == 1:
            search_categories(layout, packing, rules, packed, node_sums, feature, buffers, tree, node)
        elif not search_numeric(layout, packing, rules, packed, node_sums, feature, buffers, tree, node, bar):
            usable[feature] = HOPELESS


@inlined
def end_search(rules: RecordArray, nodes: RecordArray, node: int) -> None:
    """Turn the best score into a gain; it is -1 when no split is allowed or gains enough."""
    if nodes[node].feature < 0:
        nodes[node].gain = _NO_SPLIT
    elif rules[0].by_gain == 0:
        nodes[node].gain -= unsplit_score(rules, nodes, node)
