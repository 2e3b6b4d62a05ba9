"""The best threshold for one numeric feature of one node, given its running sums over bins.

Gains of all admissible bins are computed in one loop that compilers vectorise, then the largest is taken. Counts and
hessians only grow from left to right, so the admissible bins are one range, found before any gain is computed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import bits_from_float, borrowed, float_from_bits, inlined, kernel, multiply_add
from dmlgbm.gbdt.kernels.elementwise_math import float_of_count, hash_counter
from dmlgbm.gbdt.kernels.layout import Buffers, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.output_bounds import frame_of_children, rated, score_as_leaf, score_of_children
from dmlgbm.gbdt.kernels.split_scores import packed_word, score, score_to_beat, split_score, unpacked

# No threshold gains enough; no threshold leaves enough rows and hessian on both sides, nor will any in the nodes below.
_NOT_BETTER, _HOPELESS = -1, -2
# What the last bits of a float may say, relative to its size.
LAST_BITS = 1e-13
# What a few operations on floats may be off, relative to the largest number they meet.
_ROUNDING = 1e-14
_SIGN = np.uint64(1 << 63)
# What draws a node's thresholds counts from here on; its sample of features is drawn by numbers below.
FIRST_DRAW = np.uint64(1 << 40)
# Scans over so few bins are short (measured with 16 bins: 29 % of a search, and 40 % by halves).
_BINS_WORTH_SCANNING = 32
# G / S, excess, S and slack in the words of `bar_to_pass`; where excess is 0, everything may pass.
Bar: TypeAlias = tuple[float, float, float, float]
IntArray: TypeAlias = npt.NDArray[np.int64]


@inlined
def first_above(gains: npt.NDArray[np.float64], least: float) -> int:
    """The position of the first largest gain, or -1 if none is above `least`.

    The bits of positive floats are in the order of the floats; only integer maxima are vectorised. Mostly no
    gain is large enough, and then there is no position to look for.
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
def bar_to_pass(rules: RecordArray, packing: RecordArray, total: int, least_gain: float) -> Bar:
    """What `any_above` compares with, for a node whose packed sum is `total`.

    With x and y the hessians of both sides and l2, S = x + y, G the gradient of both sides and d = left - x * G / S,

        left**2 / x + right**2 / y = G**2 / S + d**2 * S / (x * y),

    so a score is above the least if d**2 > excess * x * y, where excess = (least - G**2 / S) / S. All that rounding may
    have taken away is added (`slack`): a split that the exact formula would take is never missed here, and what is
    found here in vain is rejected there.
    """
    all_gradient = float(total >> packing[0].gradient_shift)
    both = float((total >> packing[0].hessian_shift) & packing[0].hessian_mask) + rules[0].l2 + rules[0].l2
    mean = all_gradient / both
    excess = (least_gain - all_gradient * mean) / both
    if rules[0].l1 != 0.0 or not excess > 0.0:
        return 0.0, 0.0, 0.0, 0.0
    # |d| is at most the field's range; squares and products are at most as large as the sums that follow.
    off = _ROUNDING * float_of_count(_SIGN >> np.uint64(packing[0].gradient_shift))
    slack = off * (np.sqrt(excess) * both + off) + _ROUNDING * both * (excess * both + least_gain)
    return mean, excess, both, slack


@inlined
def any_above(rules: RecordArray, packing: RecordArray, bar: Bar, aside: int, words: npt.NDArray[np.int64]) -> bool:
    """Whether any threshold may gain more than the bar asks for: no division, and mostly the answer is no."""
    mean, excess, both, slack = bar
    if excess == 0.0:
        return True
    gradient_shift, hessian_shift = np.uint64(packing[0].gradient_shift), packing[0].hessian_shift
    hessian_mask, l2 = packing[0].hessian_mask, rules[0].l2
    # The gradient's field as an unsigned number, which is the gradient and half of the field's range.
    half_range = float_of_count(_SIGN >> gradient_shift)
    shifted_aside = np.uint64(aside) ^ _SIGN
    negative = np.int64(-1)
    for b in range(words.size):
        word = np.uint64(words[b]) + shifted_aside
        left = float_of_count(np.int64(word >> gradient_shift)) - half_range
        x = float_of_count(np.int64(word >> np.uint64(hessian_shift)) & hessian_mask) + l2
        d = multiply_add(x, -mean, left)
        negative &= bits_from_float(multiply_add(d, d, multiply_add(x * (both - x), -excess, slack)))
    return negative >= 0


@inlined
def admissible_range(
    rules: RecordArray, packing: RecordArray, total: int, aside: int, words: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """The first bin with enough rows and hessian on its left, and the first without enough of them on its right.

    With many bins both are looked for by halves, in one loop that takes as many steps for all nodes: where a long scan
    ends, no processor can foresee.
    """
    hessian_shift, hessian_mask = packing[0].hessian_shift, packing[0].hessian_mask
    count_mask, min_rows, min_hessian = packing[0].count_mask, rules[0].min_rows, rules[0].min_hessian
    right_total = total - aside
    lowest, beyond, n_left = np.int64(0), np.int64(0), np.int64(words.size)
    if n_left <= _BINS_WORTH_SCANNING:
        beyond = n_left
        while lowest < beyond:
            left = words[np.uint64(lowest)] + aside
            if left & count_mask >= min_rows and (left >> hessian_shift) & hessian_mask >= min_hessian:
                break
            lowest += 1
        while beyond > lowest:
            right = right_total - words[np.uint64(beyond - 1)]
            if right & count_mask >= min_rows and (right >> hessian_shift) & hessian_mask >= min_hessian:
                break
            beyond -= 1
        return lowest, beyond
    while n_left > 0:
        half = (n_left + 1) >> 1
        left = words[np.uint64(lowest + half - 1)] + aside
        right = right_total - words[np.uint64(beyond + half - 1)]
        # Negative where too little is on a side; a sign as a mask spares branches.
        left_excess = ((left & count_mask) - min_rows) | (((left >> hessian_shift) & hessian_mask) - min_hessian)
        right_excess = ((right & count_mask) - min_rows) | (((right >> hessian_shift) & hessian_mask) - min_hessian)
        lowest += half & (left_excess >> 63)
        beyond += half & ~(right_excess >> 63)
        n_left -= half
    return lowest, beyond


@inlined
def best_packed_threshold(
    rules: RecordArray,
    packing: RecordArray,
    total: int,
    aside: int,
    words: npt.NDArray[np.int64],
    gains: npt.NDArray[np.float64],
    bar: Bar,
    least_gain: float,
) -> int:
    """The best last-left bin among running packed sums, the word `aside` added to the left; below 0 if none is."""
    lowest, beyond = admissible_range(rules, packing, total, aside, words)
    if lowest >= beyond:
        return _HOPELESS
    # Views of the range let the compiler see that no index is negative, which it needs to vectorise. A whole number of
    # vectors is asked about: up to three bins too many are seldom above, and then they are left out below.
    if not any_above(rules, packing, bar, aside, words[lowest : lowest + (beyond - lowest + 3 & ~3)]):
        return _NOT_BETTER
    own_words, own_gains = words[lowest:beyond], gains[lowest:beyond]
    hessian_shift, hessian_mask = packing[0].hessian_shift, packing[0].hessian_mask
    gradient_shift, l1, l2 = np.uint64(packing[0].gradient_shift), rules[0].l1, rules[0].l2
    half_range = float_of_count(_SIGN >> gradient_shift)
    all_gradient = float(total >> packing[0].gradient_shift)
    all_hessian = float((total >> hessian_shift) & hessian_mask)
    for b in range(own_words.size):
        word = own_words[b] + aside
        left = float_of_count(np.int64((np.uint64(word) ^ _SIGN) >> gradient_shift)) - half_range
        hessian = float_of_count((word >> hessian_shift) & hessian_mask)
        # Sums are below 2**53: subtracting them as floats is exact.
        own_gains[b] = split_score(left, hessian, all_gradient - left, all_hessian - hessian, l1, l2)
    best = first_above(own_gains, least_gain)
    return best + lowest if best >= 0 else best


@inlined
def admissible_wide_range(
    rules: RecordArray, node_sums: tuple[int, int, int], aside: tuple[int, int, int], n_thresholds: int, sums: IntArray
) -> tuple[int, int]:
    """As `admissible_range`, for running sums in three planes."""
    hessian, count = sums[2], sums[3]
    least_rows, least_hessian = rules[0].min_rows - aside[2], rules[0].min_hessian - aside[1]
    lowest = 0
    while lowest < n_thresholds and (count[lowest] < least_rows or hessian[lowest] < least_hessian):
        lowest += 1
    most_rows = node_sums[2] - aside[2] - rules[0].min_rows
    most_hessian = node_sums[1] - aside[1] - rules[0].min_hessian
    beyond = n_thresholds
    while beyond > lowest and (count[beyond - 1] > most_rows or hessian[beyond - 1] > most_hessian):
        beyond -= 1
    return lowest, beyond


@kernel
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
    lowest, beyond = admissible_wide_range(rules, node_sums, aside, n_thresholds, sums)
    if lowest == beyond:
        return _HOPELESS
    own_gradients, own_hessians, own_gains = sums[1, lowest:beyond], sums[2, lowest:beyond], gains[lowest:beyond]
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
def least_gain(rules: RecordArray, nodes: RecordArray, node: int, unsplit: float) -> float:
    """What a split must gain: neither what rounded gradients could by chance nor what the last bits of a float say."""
    by_chance = rules[0].rounding_gain * float(nodes[node].count) / (float(nodes[node].hessian) + rules[0].l2)
    return max(rules[0].min_gain, by_chance, unsplit * LAST_BITS)


@inlined
def least_gain_by_outputs(rules: RecordArray, nodes: RecordArray, node: int) -> float:
    """The same where gains are compared: scores may be negative there."""
    best = score(float(nodes[node].gradient), float(nodes[node].hessian), rules[0].l1, rules[0].l2)
    return least_gain(rules, nodes, node, max(best, abs(score_as_leaf(rules, nodes, node))))


@kernel
def best_threshold_by_gain(
    rules: RecordArray,
    packing: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    aside: tuple[int, int, int],
    n_thresholds: int,
    buffers: Buffers,
    tree: TreeNodes,
    node: int,
    feature: int,
) -> int:
    """As the two above, where gains are compared.

    No value of a leaf removes more than its best one: where no threshold is above the bar with that, none is with any.
    """
    rules, packing, buffers, tree = borrowed((rules, packing, buffers, tree))
    nodes, sums, gains = tree.nodes, buffers.sums, buffers.gains
    to_beat, unsplit = score_to_beat(nodes, node, feature), score_as_leaf(rules, nodes, node)
    least, factor = least_gain_by_outputs(rules, nodes, node), tree.feature_rules[feature].gain_factor
    if packed:
        total, word_aside = packed_word(packing, node_sums), packed_word(packing, aside)
        words = sums[0, :n_thresholds]
        lowest, beyond = admissible_range(rules, packing, total, word_aside, words)
        if lowest >= beyond:
            return _HOPELESS
        if factor == 0.0:
            return _NOT_BETTER
        bar = bar_to_pass(rules, packing, total, max(least, to_beat / factor) + unsplit)
        if not any_above(rules, packing, bar, word_aside, words[lowest : lowest + (beyond - lowest + 3 & ~3)]):
            return _NOT_BETTER
        for b in range(lowest, beyond):
            sums[1, b], sums[2, b], sums[3, b] = unpacked(packing, words[b])
    else:
        lowest, beyond = admissible_wide_range(rules, node_sums, aside, n_thresholds, sums)
        if lowest >= beyond:
            return _HOPELESS
    own_gradients, own_hessians, own_gains = sums[1, lowest:beyond], sums[2, lowest:beyond], gains[lowest:beyond]
    own_counts, frame = sums[3, lowest:beyond], frame_of_children(rules, nodes, node, 0.0)
    direction = float(tree.feature_rules[feature].direction)
    for b in range(own_gains.size):
        left, left_hessian, left_count = (
            own_gradients[b] + aside[0],
            own_hessians[b] + aside[1],
            own_counts[b] + aside[2],
        )
        both = score_of_children(
            float(left), float(left_hessian), float(left_count), float(node_sums[0] - left),
            float(node_sums[1] - left_hessian), float(node_sums[2] - left_count), frame, direction,
        )  # fmt: skip
        own_gains[b] = rated(both - unsplit, least, factor)
    best = first_above(own_gains, to_beat)
    return best + lowest if best >= 0 else best


@inlined
def drawn(rules: RecordArray, nodes: RecordArray, node: int, feature: int, n: int) -> int:
    """A number below n for a feature of a node."""
    number = hash_counter(rules[0].node_key ^ nodes[node].path, FIRST_DRAW + np.uint64(feature))
    return np.int64(number % np.uint64(max(n, 1)))


@kernel
def drawn_threshold(
    rules: RecordArray,
    packing: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    aside: tuple[int, int, int],
    n_thresholds: int,
    buffers: Buffers,
    tree: TreeNodes,
    node: int,
    feature: int,
) -> int:
    """As the three above, where a single threshold is tried."""
    rules, packing, buffers, tree = borrowed((rules, packing, buffers, tree))
    nodes, sums = tree.nodes, buffers.sums
    if packed:
        total, word_aside = packed_word(packing, node_sums), packed_word(packing, aside)
        lowest, beyond = admissible_range(rules, packing, total, word_aside, sums[0, :n_thresholds])
    else:
        lowest, beyond = admissible_wide_range(rules, node_sums, aside, n_thresholds, sums)
    if lowest >= beyond:
        return _HOPELESS
    b = lowest + drawn(rules, nodes, node, feature, beyond - lowest)
    own = unpacked(packing, sums[0, b]) if packed else (sums[1, b], sums[2, b], sums[3, b])
    left, left_hessian, left_count = own[0] + aside[0], own[1] + aside[1], own[2] + aside[2]
    right, right_hessian = float(node_sums[0] - left), float(node_sums[1] - left_hessian)
    if rules[0].by_gain == 0:
        gain = split_score(float(left), float(left_hessian), right, right_hessian, rules[0].l1, rules[0].l2)
    else:
        both = score_of_children(
            float(left), float(left_hessian), float(left_count), right, right_hessian,
            float(node_sums[2] - left_count), frame_of_children(rules, nodes, node, 0.0),
            float(tree.feature_rules[feature].direction),
        )  # fmt: skip
        least, factor = least_gain_by_outputs(rules, nodes, node), tree.feature_rules[feature].gain_factor
        gain = rated(both - score_as_leaf(rules, nodes, node), least, factor)
    buffers.gains[b] = gain
    return b if gain > score_to_beat(nodes, node, feature) else _NOT_BETTER


@inlined
def search_numeric(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    packed: bool,
    node_sums: tuple[int, int, int],
    feature: int,
    buffers: Buffers,
    tree: TreeNodes,
    node: int,
    bar: Bar,
) -> bool:
    """Replace the node's best split if a threshold over these running sums gains more; False if none is admissible."""
    sums, gains, nodes = buffers.sums, buffers.gains, tree.nodes
    any_admissible = False
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
        if rules[0].at_random == 1:
            best = drawn_threshold(rules, packing, packed, node_sums, aside, n_thresholds, buffers, tree, node, feature)
        elif rules[0].by_gain == 1:
            best = best_threshold_by_gain(
                rules, packing, packed, node_sums, aside, n_thresholds, buffers, tree, node, feature
            )
        elif packed:
            best = best_packed_threshold(
                rules, packing, total, packed_word(packing, aside), sums[0, :n_thresholds], gains, bar, least
            )
        else:
            best = best_wide_threshold(rules, node_sums, aside, n_thresholds, sums, gains, least)
        any_admissible = any_admissible or best != _HOPELESS
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
    return any_admissible
