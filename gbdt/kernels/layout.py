"""The records that kernels share: how bins are stored, how a feature is found in them, how sums are packed.

One idea is needed to read the kernels: a *column* is something stored (one byte or two a row, or a tile of
sparse entries), a *feature* is what the user passed in. A feature may share its column with others that are
never away from their usual value at the same time; its usual (*implicit*) bin is then not stored at all and
is recovered as the node's total less the feature's stored bins. Columns of few values may share a byte (a *joint*
byte); each of them is a *part* of it and has its own place in histograms.

Numbers that belong together are a record of a structured array, and arrays that belong together are a named tuple.
(numba unpacks tuples: one for each number took several times as long to compile.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

NARROW, WIDE, SPARSE = 0, 1, 2

RecordArray = npt.NDArray[Any]
"""A structured array of one of the dtypes below."""

TILE = np.dtype(
    [
        ("storage", np.int64),  # NARROW, WIDE or SPARSE
        ("first_column", np.int64),  # columns within that storage
        ("last_column", np.int64),
        ("first_position", np.int64),  # their part of a histogram
        ("last_position", np.int64),
        ("first_feature", np.int64),  # their part of `tile_features`
        ("last_feature", np.int64),
        ("first_joint", np.int64),  # the first of its columns that is a joint byte
        ("first_part", np.int64),  # the parts of its joint bytes
        ("last_part", np.int64),
        ("first_sum", np.int64),  # the positions of their sums
        ("last_sum", np.int64),
    ]
)
"""Some neighbouring columns, few enough that their part of a histogram stays in the cache between steps."""


PART = np.dtype(
    [
        ("column", np.int64),  # the joint byte, among one-byte columns
        ("position", np.int64),  # the part of a histogram of this column
        ("values", np.int64),  # how many values it has
        ("stride", np.int64),  # the byte is the sum of value * stride over its parts
        ("first_sum", np.int64),  # where the sums of the byte begin
    ]
)
"""A column that has few values and shares its byte with others, as digits share a number."""


class BinStorage(NamedTuple):
    """The binned rows, and where in a histogram each column (or sparse tile) begins."""

    narrow: npt.NDArray[np.uint8]  # [row, column]
    narrow_by_column: npt.NDArray[np.uint8]  # [column, row]: partition reads one column of many rows; or nothing
    wide: npt.NDArray[np.uint16]  # [row, column]
    sparse_starts: npt.NDArray[np.int64]  # [tile, row + 1], into sparse_entries
    sparse_entries: npt.NDArray[np.uint16]  # stored values of a row within a tile, ascending
    entry_rows: npt.NDArray[np.uint32]  # the rows of all sparse entries, by stored value; or nothing
    entry_row_starts: npt.NDArray[np.int64]  # [stored value of all sparse tiles + 1], into entry_rows; or nothing
    positions: npt.NDArray[np.uint32]  # narrow columns first, then wide ones, then sparse tiles
    tiles: RecordArray
    tile_features: npt.NDArray[np.int64]  # the features of one tile after the other, ascending in each
    sum_positions: npt.NDArray[np.uint32]  # [narrow column]: its position; that of a joint byte is behind all positions
    parts: RecordArray  # PART, one joint byte after the other, the largest stride first in each
    digits: npt.NDArray[np.uint8]  # [part, byte]: the part's value


FEATURE = np.dtype(
    [
        ("position", np.int64),  # histogram position of the feature's first stored bin
        ("storage", np.int32),  # NARROW, WIDE or SPARSE
        ("column", np.int32),  # column (or tile) within that storage
        ("first_value", np.int32),  # stored value of the feature's first stored bin
        ("bins", np.int32),  # number of bins, the missing bin included
        ("implicit_bin", np.int32),  # bin that is not stored, or -1
        ("missing_bin", np.int32),  # bin of missing values (the last), or -1
        ("categorical", np.int32),
        ("stride", np.int32),  # of its column in a joint byte
        ("values", np.int32),  # how many values its column has in a joint byte; 0: the byte is its own
    ],
    align=True,
)
"""Where a feature lives."""


class BinnedTable(NamedTuple):
    """The binned rows, and where each feature is found in them."""

    storage: BinStorage
    layout: RecordArray  # FEATURE


PACKING = np.dtype(
    [
        ("gradient_shift", np.int64),
        ("hessian_shift", np.int64),
        ("hessian_mask", np.int64),
        ("count_mask", np.int64),
        ("hessian_factor", np.int64),  # 1 << hessian_shift, or 0 when the count serves as hessian
        ("block_rows", np.int64),  # rows whose words may be summed without the fields touching
        ("packed_rows", np.int64),  # nodes of at most this many rows keep packed histograms
        ("two_words", np.int64),  # 1: gradient in the first word, hessian and count in the second
    ]
)
"""How gradient, hessian and row count share an int64: gradient << shift + hessian << shift + 1."""


class PackedGradients(NamedTuple):
    """The gradients that one tree is grown on."""

    packing: RecordArray  # one PACKING
    words: npt.NDArray[np.int64]  # [1 or 2, row]


SPLIT_RULES = np.dtype(
    [
        ("min_rows", np.int64),
        ("min_hessian", np.int64),
        ("l1", np.float64),
        ("l2", np.float64),
        ("min_gain", np.float64),
        ("rounding_gain", np.float64),  # times rows over hessian: what rounding errors may gain by chance
        ("max_depth", np.int64),
        ("category_smoothing", np.float64),
        ("category_l2", np.float64),
        ("category_min_rows", np.int64),
        ("max_category_threshold", np.int64),
        ("max_one_against_rest", np.int64),
        ("min_rows_per_group", np.int64),
        ("features_per_node", np.int64),
        ("node_key", np.uint64),
        ("at_random", np.int64),  # 1: one threshold of a feature is tried in a node, drawn among those allowed
        # 1: what splits gain follows from the values that leaves would give out, and gains are compared, not scores
        ("by_gain", np.int64),
        ("bounds", np.int64),  # how a split at a constrained feature bounds its children, or NO_BOUNDS
        ("smoothing", np.float64),  # a node of so many rows gives out the mean of its best value and its parent's
    ]
)
"""What a split must fulfil, in the integer units of the current tree."""

NO_BOUNDS, BOUNDS_IN_THE_MIDDLE, BOUNDS_OF_THE_OTHER = range(3)

FEATURE_RULES = np.dtype(
    [
        ("direction", np.int64),  # 1: what comes out must not fall as values grow; -1: must not rise; 0: either
        ("gain_factor", np.float64),
    ]
)
"""What holds for the splits at one feature."""

NO_FEATURE_RULES = np.zeros(0, FEATURE_RULES)
NO_GROUPS = np.zeros((0, 0), np.uint64)

LEAF, CLAIMED, SPLIT = 1, 2, 3

NODE = np.dtype(
    [
        ("state", np.int64),  # LEAF: searched; CLAIMED: a thread is splitting it; SPLIT; 0: does not exist yet
        ("start", np.int64),  # the node's rows are rows[start : start + count]
        ("count", np.int64),
        ("depth", np.int64),
        ("gradient", np.int64),
        ("hessian", np.int64),
        ("slot", np.int64),  # histogram of the node in the pool, or -1
        ("path", np.uint64),  # hash of the way from the root: the node's name in random choices
        ("left", np.int64),  # left child, or -1; the right child is the next node
        ("gain", np.float64),  # of the best split, or -1 when there is none
        ("feature", np.int64),
        ("bin", np.int64),  # last bin that goes left, or -1 for a set of categories
        ("missing_left", np.int64),
        ("left_gradient", np.int64),
        ("left_hessian", np.int64),
        ("left_count", np.int64),
        ("n_categories", np.int64),  # length of the node's row in the table of categories that go left
        ("lower", np.float64),  # where there are bounds: the least that the node may give out
        ("upper", np.float64),
        ("parent_output", np.float64),  # what the parent would give out as a leaf
    ]
)
"""A node of the tree being grown, with its best split."""


class TreeNodes(NamedTuple):
    """The nodes of a tree over bins."""

    nodes: RecordArray  # NODE
    categories: npt.NDArray[np.int32]  # [node, category]: those that go left
    feature_rules: RecordArray = NO_FEATURE_RULES  # FEATURE_RULES [feature], or nothing where there are none
    # Groups of features that may meet on a way from the root, a bit each; or no words.
    groups: npt.NDArray[np.uint64] = NO_GROUPS  # [node, word]: those that hold all features on the way to the node
    feature_groups: npt.NDArray[np.uint64] = NO_GROUPS  # [feature, word]: those that hold the feature


class NodeRows(NamedTuple):
    """The rows that are here, node by node: numbers[starts[node] : starts[node] + counts[node]]."""

    numbers: npt.NDArray[np.uint32]
    scratch: npt.NDArray[np.uint32]  # room to rearrange them in
    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


class Directions(NamedTuple):
    """Which way a split sends its rows: by what is stored for them, or row by row."""

    goes_left: npt.NDArray[np.uint8]  # [stored value]
    marks: npt.NDArray[np.uint8]  # one bit a row, all of them 0 between two splits; or nothing


class Buffers(NamedTuple):
    """Scratch space of one thread."""

    sums: npt.NDArray[np.int64]  # [4, bin]: words, gradients, hessians, counts of the feature being searched
    gains: npt.NDArray[np.float64]  # [bin]
    order: npt.NDArray[np.int64]  # [bin, feature or leaf]
    usable: npt.NDArray[np.uint8]  # [2, feature]: whether the left and the right child may split at it
    directions: Directions
    block: npt.NDArray[np.int64]  # packed histogram of one block of rows, then the sums of joint bytes


class RowPasses(NamedTuple):
    """What is done to every row between two trees: derivatives, words, labels, sums by leaf, scores.

    `gradients` has no rows where somebody else makes the passes; the tree's rows are labelled all the same.
    """

    loss: RecordArray  # one LOSS
    target: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]  # or nothing
    scores: npt.NDArray[np.float64]  # [output, row]
    gradients: npt.NDArray[np.float32]  # [output, row]
    hessians: npt.NDArray[np.float32]  # [output, row], or no rows where every hessian is 1
    largest: npt.NDArray[np.float64]  # [part, 2]: magnitudes of gradients and hessians
    rounding: RecordArray  # one ROUNDING
    labels: npt.NDArray[Any]  # uint8 or uint32: the leaf of each row
    leaves: npt.NDArray[np.int64]  # of the finished tree, from left to right
    waiting: npt.NDArray[np.int64]  # scratch space to list them
    is_split: npt.NDArray[np.uint8]  # [node]: the same
    steps: RecordArray  # one STEP_RULES
    sums: npt.NDArray[np.int64]  # [part, leaf, 2]: the last leaf takes rows that the tree was not grown on
    leaf_values: npt.NDArray[np.float64]  # what the tree adds to the scores
    leaf_hessians: npt.NDArray[np.float64]


class TreeSpace(NamedTuple):
    """What all threads share that grow one tree after the other over the same rows."""

    table: BinnedTable
    gradients: PackedGradients
    rules: RecordArray  # one SPLIT_RULES
    features: npt.NDArray[np.int64]  # those that the tree may use come first
    rows: npt.NDArray[np.uint32]  # row numbers, node by node
    scratch: npt.NDArray[np.uint32]
    pool: npt.NDArray[np.int64]  # [slot, plane, position]: histograms
    hopeless: npt.NDArray[np.uint8]  # [slot, feature]: 1 if the slot's node has no admissible split at it
    tree: TreeNodes
    directions: Directions  # of the leaf that several threads split
    free_slots: npt.NDArray[np.int64]
    chosen: npt.NDArray[np.int64]  # the splits of the finished tree
    shared: npt.NDArray[np.int64]  # counters, see `shared_state`
    instructions: npt.NDArray[np.int64]  # what the tree is to be like, see `shared_state`
    passes: RowPasses


class RoundLeaves(NamedTuple):
    """The leaves that a round expands; the first of all rounds has the root, as the only child of node -1."""

    picked: npt.NDArray[np.int64]  # their nodes
    lefts: npt.NDArray[np.int64]  # the left child of each; the right one is the next node
    slots: npt.NDArray[np.int64]  # the histogram in the pool that each one's smaller child gets
    counters: npt.NDArray[np.int64]  # see `round_growth`


class RoundSpace(NamedTuple):
    """What all threads of a rank share that grow a tree in rounds with other ranks."""

    gradients: PackedGradients
    rules: RecordArray  # one SPLIT_RULES
    features: npt.NDArray[np.int64]  # those that the tree may use
    tree: TreeNodes  # as all ranks know it
    rows: NodeRows
    leaves: RoundLeaves
