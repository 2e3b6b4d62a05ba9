"""The best split of one node, over all features it may use.

Sums to the left of every bin come first (a running integer sum, the only loop with a dependency), then gains
of all admissible bins in one loop that compilers vectorise, then the largest. Counts and hessians only grow
from left to right, so the admissible bins are one range, found before any gain is computed. Ties go to the
lower feature, then to missing values on the right, then to the lower bin: one total order on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import bits_from_float, borrowed, float_from_bits, inlined, kernel
from gbdt.kernels.elementwise_math import hash_counter
from gbdt.kernels.layout import Buffers, RecordArray
from gbdt.kernels.sorting import order_by_key

_NO_SPLIT = -1.0
_LAST_BITS = 1e-13


@inlined
def score(gradient: float, hessian: float, l1: float, l2: float) -> float:
    """Twice the loss that a leaf with these sums removes: T(G)^2 / (H + l2), T shrinking by l1."""
    shrunk = max(abs(gradient) - l1, 0.0)
    return shrunk * shrunk / (hessian + l2)


@inlined
def add_up(parts: npt.NDArray[np.int64], so_far: int, sums: npt.NDArray[np.int64]) -> int:
    """Running sums of the parts, beginning with `so_far`; returns the last."""
    for b in range(parts.size):
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
def unpacked(packing: RecordArray, word: int) -> tuple[int, int, int]:
    """Gradient, hessian and count of a packed sum."""
    gradient = word >> packing[0].gradient_shift
    hessian = (word >> packing[0].hessian_shift) & packing[0].hessian_mask
    return gradient, hessian, word & packing[0].count_mask


@inlined
def packed_word(packing: RecordArray, sums: tuple[int, int, int]) -> int:
    """The packed sum of gradient, hessian and count."""
    return (sums[0] << packing[0].gradient_shift) + sums[1] * packing[0].hessian_factor + sums[2]


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
def split_score(left: float, left_hessian: float, right: float, right_hessian: float, l1: float, l2: float) -> float:
    """The score of both sides together. One division serves both: it is the slowest operation here."""
    left, right = max(abs(left) - l1, 0.0), max(abs(right) - l1, 0.0)
    left_hessian += l2
    right_hessian += l2
    return (left * left * right_hessian + right * right * left_hessian) / (left_hessian * right_hessian)


@inlined
def first_above(gains: npt.NDArray[np.float64], least: float) -> int:
    """The place of the first largest gain, or -1 if none is above `least`.

    The bits of positive floats are in the order of the floats; only integer maxima are vectorised. Mostly no
    gain is large enough, and then there is no place to look for.
    """
    bits = gains.view(np.int64)
    largest = np.int64(0)
    for b in range(bits.size):
        largest = max(largest, bits[b])
    if not float_from_bits(largest) > least:
        return -1
    for b in range(bits.size):
        if bits[b] == largest:
            return b
    return -1


@inlined
def score_to_beat(nodes: RecordArray, node: int, feature: int) -> float:
    """The best score so far, or the next lower number if this feature wins a tie against the one that has it."""
    best = nodes[node].gain
    return float_from_bits(bits_from_float(best) - 1) if feature < nodes[node].feature else best


@inlined
def any_above(
    rules: RecordArray,
    packing: RecordArray,
    total: int,
    aside: int,
    words: npt.NDArray[np.int64],
    least_gain: float,
) -> bool:
    """Whether any threshold may gain more than `least_gain`: no division, and mostly the answer is no.

    Instead of score = a / b with the threshold, compares a with threshold * b, a little lower than it is so
    that no rounding can hide a split. Sums are below 2**53, so subtracting them as floats is exact.
    """
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    hessian_mask = packing[0].hessian_mask
    l2, least = rules[0].l2, least_gain * (1.0 - _LAST_BITS)
    all_gradient = float(total >> gradient_shift)
    all_hessian = float((total >> hessian_shift) & hessian_mask)
    largest = np.int64(-1)
    for b in range(words.size):
        word = words[b] + aside
        left, left_hessian = float(word >> gradient_shift), float((word >> hessian_shift) & hessian_mask)
        right, right_hessian = all_gradient - left, all_hessian - left_hessian + l2
        left_hessian += l2
        excess = left * left * right_hessian + right * right * left_hessian - least * (left_hessian * right_hessian)
        largest = max(largest, bits_from_float(excess))
    return largest >= 0


@inlined
def best_packed_threshold(
    rules: RecordArray,
    packing: RecordArray,
    total: int,
    aside: int,
    words: npt.NDArray[np.int64],
    gains: npt.NDArray[np.float64],
    least_gain: float,
) -> int:
    """The best last-left bin among running packed sums, the word `aside` added to the left; -1 if none gains enough."""
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    hessian_mask, count_mask = packing[0].hessian_mask, packing[0].count_mask
    min_rows, min_hessian = rules[0].min_rows, rules[0].min_hessian
    l1, l2 = rules[0].l1, rules[0].l2
    lowest, beyond = 0, words.size
    while lowest < beyond:
        word = words[lowest] + aside
        if word & count_mask >= min_rows and (word >> hessian_shift) & hessian_mask >= min_hessian:
            break
        lowest += 1
    while beyond > lowest:
        word = total - words[beyond - 1] - aside
        if word & count_mask >= min_rows and (word >> hessian_shift) & hessian_mask >= min_hessian:
            break
        beyond -= 1
    # Views of the range let the compiler see that no index is negative, which it needs to vectorise.
    own_words, own_gains = words[lowest:beyond], gains[lowest:beyond]
    if l1 == 0.0 and not any_above(rules, packing, total, aside, own_words, least_gain):
        return -1
    for b in range(own_words.size):
        left = own_words[b] + aside
        right = total - left
        own_gains[b] = split_score(
            float(left >> gradient_shift),
            float((left >> hessian_shift) & hessian_mask),
            float(right >> gradient_shift),
            float((right >> hessian_shift) & hessian_mask),
            l1,
            l2,
        )
    best = first_above(own_gains, least_gain)
    return best + lowest if best >= 0 else best


@inlined
def best_wide_threshold(
    rules: RecordArray,
    node_sums: tuple[int, int, int],
    aside: tuple[int, int, int],
    n_thresholds: int,
    sums: npt.NDArray[np.int64],
    gains: npt.NDArray[np.float64],
    least_gain: float,
) -> int:
    """As `best_packed_threshold`, for running sums in three planes."""
    gradient, hessian, count = sums[1], sums[2], sums[3]
    least_rows, least_hessian = rules[0].min_rows - aside[2], rules[0].min_hessian - aside[1]
    lowest = 0
    while lowest < n_thresholds and (count[lowest] < least_rows or hessian[lowest] < least_hessian):
        lowest += 1
    most_rows = node_sums[2] - aside[2] - rules[0].min_rows
    most_hessian = node_sums[1] - aside[1] - rules[0].min_hessian
    beyond = n_thresholds
    while beyond > lowest and (count[beyond - 1] > most_rows or hessian[beyond - 1] > most_hessian):
        beyond -= 1
    own_gradients, own_hessians, own_gains = gradient[lowest:beyond], hessian[lowest:beyond], gains[lowest:beyond]
    left_over, right_over = aside[0], node_sums[0] - aside[0]
    left_hessian_over, right_hessian_over = aside[1], node_sums[1] - aside[1]
    l1, l2 = rules[0].l1, rules[0].l2
    for b in range(own_gains.size):
        own_gains[b] = split_score(
            float(own_gradients[b] + left_over),
            float(own_hessians[b] + left_hessian_over),
            float(right_over - own_gradients[b]),
            float(right_hessian_over - own_hessians[b]),
            l1,
            l2,
        )
    best = first_above(own_gains, least_gain)
    return best + lowest if best >= 0 else best


@inlined
def search_numeric(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    feature: int,
    sums: npt.NDArray[np.int64],
    gains: npt.NDArray[np.float64],
    nodes: RecordArray,
    node: int,
) -> None:
    """Replace the node's best split if a threshold over these running sums gains more."""
    nothing = (np.int64(0), np.int64(0), np.int64(0))
    total = packed_word(packing, node_sums)
    last_value = np.int64(layout[feature].missing_bin) - 1
    if packed:
        missing = unpacked(packing, total - sums[0, last_value])
    else:
        missing = (
            node_sums[0] - sums[1, last_value],
            node_sums[1] - sums[2, last_value],
            node_sums[2] - sums[3, last_value],
        )
    some_missing = missing[2] > 0
    for missing_left in range(2 if some_missing else 1):
        # With missing values on the right, "every value left, missing right" is a split of its own.
        n_thresholds = last_value + (1 if some_missing and missing_left == 0 else 0)
        aside = missing if missing_left == 1 else nothing
        least = score_to_beat(nodes, node, feature)
        if packed:
            best = best_packed_threshold(
                rules, packing, total, packed_word(packing, aside), sums[0, :n_thresholds], gains, least
            )
        else:
            best = best_wide_threshold(rules, node_sums, aside, n_thresholds, sums, gains, least)
        if best >= 0:
            left = unpacked(packing, sums[0, best]) if packed else (sums[1, best], sums[2, best], sums[3, best])
            nodes[node].gain = gains[best]
            nodes[node].feature = feature
            nodes[node].bin = best
            nodes[node].left_gradient = left[0] + aside[0]
            nodes[node].left_hessian = left[1] + aside[1]
            nodes[node].left_count = left[2] + aside[2]
            # Missing values that training never met here follow the larger side.
            more_left = 2 * nodes[node].left_count >= node_sums[2]
            nodes[node].missing_left = missing_left if some_missing else (1 if more_left else 0)


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


@inlined
def search_categories(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    feature: int,
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    node: int,
) -> None:
    """Replace the node's best split if a set of categories against the rest gains more.

    Few categories: each one alone. Many: in the order of their mean gradient the best set is a prefix, from
    one end or the other. Rare categories stay right, and prefixes are short, because the order of small sums
    is mostly noise.
    """
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
    if not one_against_rest:
        order_by_key(ratio, order, n_used)
    longest = n_used if one_against_rest else min(rules[0].max_category_threshold, (n_used + 1) // 2)
    min_group = 0 if one_against_rest else rules[0].min_rows_per_group
    l1 = rules[0].l1
    l2 = rules[0].l2 + (0.0 if one_against_rest else rules[0].category_l2)
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
            right_count, right_hessian = node_sums[2] - count, node_sums[1] - hessian
            if count < rules[0].min_rows or hessian < rules[0].min_hessian or group < min_group:
                continue
            if right_count < max(rules[0].min_rows, min_group) or right_hessian < rules[0].min_hessian:
                continue
            group = np.int64(0)
            right = float(node_sums[0] - gradient)
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


@inlined
def choose_features(
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    path: np.uint64,
    buffers: Buffers,
    usable: npt.NDArray[np.uint8],
) -> None:
    """Mark the features a node may use: all of them, or those with the smallest hashes of (tree, node, feature)."""
    for feature in range(usable.size):
        usable[feature] = 0
    n_chosen = rules[0].features_per_node
    if n_chosen >= features.size:
        for k in range(features.size):
            usable[features[k]] = 1
        return
    hashes, order = buffers.gains, buffers.order
    for k in range(features.size):
        hashes[k] = float(hash_counter(rules[0].node_key ^ path, np.uint64(features[k])) >> np.uint64(11))
        order[k] = k
    order_by_key(hashes, order, features.size)
    for k in range(n_chosen):
        usable[features[order[k]]] = 1


@inlined
def unsplit_score(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """The score of a node as it is."""
    return score(float(nodes[node].gradient), float(nodes[node].hessian), rules[0].l1, rules[0].l2)


@inlined
def begin_search(rules: RecordArray, nodes: RecordArray, node: int) -> None:
    """Set the score that a split of the node must exceed."""
    unsplit = unsplit_score(rules, nodes, node)
    # Neither what rounded gradients could gain by chance nor what the last bits of a float say is a split.
    by_chance = rules[0].rounding_gain * float(nodes[node].count) / (float(nodes[node].hessian) + rules[0].l2)
    nodes[node].gain = unsplit + max(rules[0].min_gain, by_chance, unsplit * _LAST_BITS)
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
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    node: int,
) -> None:
    """Replace the node's best split by better ones of these features, where they may be used."""
    layout, packing, rules, nodes = borrowed((layout, packing, rules, nodes))
    features, usable, planes, categories = borrowed((features, usable, planes, categories))
    buffers = borrowed(buffers)
    node_sums = (nodes[node].gradient, nodes[node].hessian, nodes[node].count)
    for k in range(features.size):
        feature = features[k]
        if usable[feature] == 0:
            continue
        if not load_bins(layout, packing, rules, planes, packed, node_sums, feature, buffers.sums):
            continue
        if layout[feature].categorical == 1:
            search_categories(layout, packing, rules, packed, node_sums, feature, buffers, nodes, categories, node)
        else:
            search_numeric(layout, packing, rules, packed, node_sums, feature, buffers.sums, buffers.gains, nodes, node)


@inlined
def end_search(rules: RecordArray, nodes: RecordArray, node: int) -> None:
    """Turn the best score into a gain; it is -1 when no split is allowed or gains enough."""
    found = nodes[node].feature >= 0
    nodes[node].gain = nodes[node].gain - unsplit_score(rules, nodes, node) if found else _NO_SPLIT
