"""Which feature is stored where: a byte or two a row, a byte shared with others, or sparse entries.

Features that are never away from their usual bin in the same row can share one column exactly. Who may share
is guessed from the sample by greedy colouring and checked on every row while the data are binned. Columns of few
values are then joined into bytes (`joint_columns`), without room for missing values where the sample has none, which is
checked on every row, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.feature_bins import CategoricalBins, FeatureBins
from dmlgbm.gbdt.data.joint_columns import JointColumns, choose_joints, describe_joints
from dmlgbm.gbdt.kernels.layout import FEATURE, NARROW, SPARSE, TILE, WIDE, RecordArray

_NARROW_VALUES = 256
_TILE_VALUES = 32_768
# A row's sparse entry costs about as much as two dense bins, and finding it takes a search.
_SPARSE_SHARE = 0.3
_FEWEST_SPARSE_FEATURES = 16
_SHARED_SHARE = 0.5
_COLUMNS_TRIED = 64
# Columns whose packed histogram stays in the first cache levels (measured: 717 columns at once cost 1.4 ns a row
# and column, 64 at a time 0.75).
_TILE_COLUMNS = 64
# Sums of joint bytes that stay in the first cache level (measured: 45 joint bytes at once cost 0.70 of what their 100
# columns cost apart, 16 at a time 0.59).
_TILE_SUMS = 4_096


@dataclass(frozen=True)
class SampledFeature:
    """What the sample says of a feature: its usual bin and the sampled rows that are away from it."""

    usual_bin: int
    away: npt.NDArray[np.uint8]  # one bit a sampled row
    share_away: float
    has_missing: bool


@dataclass(frozen=True)
class StoragePlan:
    """The layout of the used features (in `features`), and the features of each column and tile."""

    layout: RecordArray
    features: npt.NDArray[np.int64]
    narrow_columns: tuple[tuple[int, ...], ...]  # indices into `features` that share a byte, part by part
    wide_columns: tuple[int, ...]
    sparse_tiles: tuple[tuple[int, ...], ...]
    positions: npt.NDArray[np.uint32]
    n_positions: int
    tiles: RecordArray
    tile_features: npt.NDArray[np.int64]
    joints: JointColumns

    def parts_of(self, column: int) -> list[tuple[int, ...]]:
        """The members of each part of a one-byte column; a single one unless it is a joint byte."""
        strides = self.layout["stride"]
        return [
            tuple(part) for _, part in groupby(self.narrow_columns[column], key=lambda member: int(strides[member]))
        ]


def plan_storage(
    bins: Sequence[FeatureBins],
    sampled: Sequence[SampledFeature],
    features: Sequence[int],
    never_shared: frozenset[int],
) -> StoragePlan:
    """Decide where every feature in `features` is stored; those in `never_shared` get columns of their own."""
    shared = _shared_columns(bins, sampled, [f for f in features if f not in never_shared])
    sharing = {feature for column in shared for feature in column}
    alone = [f for f in features if f not in sharing]
    sparse = [f for f in alone if sampled[f].share_away <= _SPARSE_SHARE and bins[f].n_bins <= _NARROW_VALUES]
    if len(sparse) < _FEWEST_SPARSE_FEATURES:
        sparse = []
    dense = sorted(set(alone) - set(sparse))
    narrow = sorted([(f,) for f in dense if bins[f].n_bins <= _NARROW_VALUES] + [tuple(column) for column in shared])
    values = [_values_of(bins, sampled, never_shared, column) for column in narrow]
    # Joint bytes come last, so that those of a tile are neighbours.
    joints = [[(narrow[k], values[k]) for k in joint] for joint in choose_joints(values)]
    joints.sort(key=lambda parts: (len(parts) > 1, parts))
    wide = [f for f in dense if bins[f].n_bins > _NARROW_VALUES]
    return _laid_out(bins, sampled, sorted(features), joints, wide, _tiles(bins, sparse))


def _values_of(
    bins: Sequence[FeatureBins],
    sampled: Sequence[SampledFeature],
    never_shared: frozenset[int],
    members: Sequence[int],
) -> int:
    """How many values a one-byte column has if it is a part of a joint byte."""
    if len(members) > 1:
        return 1 + sum(bins[feature].n_bins - 1 for feature in members)
    (feature,) = members
    with_missing = sampled[feature].has_missing or feature in never_shared
    return bins[feature].n_bins - (0 if with_missing else 1)


def _shared_columns(
    bins: Sequence[FeatureBins], sampled: Sequence[SampledFeature], candidates: Sequence[int]
) -> list[list[int]]:
    """Greedy colouring: each feature joins the first column where it is alone in every sampled row."""
    columns: list[tuple[list[int], npt.NDArray[np.uint8]]] = []
    sizes: list[int] = []
    most_bins = _NARROW_VALUES // 2
    fitting = [f for f in candidates if sampled[f].share_away <= _SHARED_SHARE and bins[f].n_bins <= most_bins]
    for feature in sorted(fitting, key=lambda f: (-sampled[f].share_away, f)):
        needed = bins[feature].n_bins - 1
        for k in range(max(0, len(columns) - _COLUMNS_TRIED), len(columns)):
            members, away = columns[k]
            if sizes[k] + needed <= _NARROW_VALUES and not np.any(away & sampled[feature].away):
                members.append(feature)
                away |= sampled[feature].away
                sizes[k] += needed
                break
        else:
            columns.append(([feature], sampled[feature].away.copy()))
            sizes.append(1 + needed)
    return [sorted(members) for members, _ in columns if len(members) > 1]


def _tiles(bins: Sequence[FeatureBins], sparse: Sequence[int]) -> list[list[int]]:
    tiles: list[list[int]] = []
    room = 0
    for feature in sparse:
        needed = bins[feature].n_bins - 1
        if not tiles or needed > room:
            tiles.append([])
            room = _TILE_VALUES
        tiles[-1].append(feature)
        room -= needed
    return tiles


def _laid_out(
    bins: Sequence[FeatureBins],
    sampled: Sequence[SampledFeature],
    features: Sequence[int],
    narrow: Sequence[Sequence[tuple[tuple[int, ...], int]]],
    wide: Sequence[int],
    tiles: Sequence[Sequence[int]],
) -> StoragePlan:
    index_of = {feature: k for k, feature in enumerate(features)}
    layout = np.zeros(len(features), FEATURE)
    positions: list[int] = []
    position = 0
    # Parts of each column, with how many values each has in a joint byte.
    groups: list[tuple[int, Sequence[Sequence[tuple[Sequence[int], int]]]]] = [
        (NARROW, narrow),
        (WIDE, [[([feature], 0)] for feature in wide]),
        (SPARSE, [[(tile, 0)] for tile in tiles]),
    ]
    for storage, columns in groups:
        for column, parts in enumerate(columns):
            positions.append(position)
            stride = prod(values for _, values in parts)
            for members, values in parts:
                implicit = storage == SPARSE or len(members) > 1
                stride //= max(values, 1)
                # Value 0 of a shared column says that every member has its usual bin.
                value = 1 if implicit and storage == NARROW else 0
                for feature in members:
                    stored = bins[feature].n_bins - (1 if implicit else 0)
                    layout[index_of[feature]] = (
                        position + value,
                        storage,
                        column,
                        value,
                        bins[feature].n_bins,
                        sampled[feature].usual_bin if implicit else -1,
                        bins[feature].missing_bin,
                        isinstance(bins[feature], CategoricalBins),
                        stride,
                        values if len(parts) > 1 else 0,
                    )
                    value += stored
                position += value
    joints = describe_joints(layout, len(narrow), positions, position)
    cut, tile_features = cut_tiles(layout, positions, position, joints.parts)
    return StoragePlan(
        layout=layout,
        features=np.array(features, np.int64),
        narrow_columns=tuple(tuple(index_of[f] for members, _ in parts for f in members) for parts in narrow),
        wide_columns=tuple(index_of[f] for f in wide),
        sparse_tiles=tuple(tuple(index_of[f] for f in tile) for tile in tiles),
        positions=np.array(positions, np.uint32),
        n_positions=position,
        tiles=cut,
        tile_features=tile_features,
        joints=joints,
    )


def cut_tiles(
    layout: RecordArray, positions: Sequence[int], end: int, parts: RecordArray
) -> tuple[RecordArray, npt.NDArray[np.int64]]:
    """Cut the columns into tiles; the features of one tile after the other, ascending in each."""
    tiles: list[tuple[int, ...]] = []
    features: list[int] = []
    before = 0
    for storage in (NARROW, WIDE, SPARSE):
        own = np.flatnonzero(layout["storage"] == storage)
        columns = layout["column"][own]
        n_columns = int(columns.max(initial=-1)) + 1
        starts = [*positions, end][before : before + n_columns + 1]
        step = 1 if storage == SPARSE else _TILE_COLUMNS
        own_parts = parts if storage == NARROW else parts[:0]
        for first, last in _cut_columns(n_columns, step, own_parts):
            members = own[(columns >= first) & (columns < last)]
            first_part, last_part = np.searchsorted(own_parts["column"], (first, last))
            in_tile = own_parts[first_part:last_part]
            first_joint = int(in_tile["column"].min(initial=last))
            last_sums = in_tile["first_sum"] + in_tile["stride"] * in_tile["values"]
            of_columns = (storage, first, last, starts[first], starts[last])
            of_features = (len(features), len(features) + len(members))
            of_parts = (first_joint, int(first_part), int(last_part))
            of_sums = (int(in_tile["first_sum"][:1].sum()), int(last_sums.max(initial=0)))
            tiles.append((*of_columns, *of_features, *of_parts, *of_sums))
            features.extend(members.tolist())
        before += n_columns
    return np.array(tiles, TILE), np.array(features, np.int64)


def _cut_columns(n_columns: int, most_columns: int, parts: RecordArray) -> list[tuple[int, int]]:
    """The first and last column of each tile: at most so many, and joint bytes whose sums fit the cache together."""
    n_sums = np.zeros(n_columns, np.int64)
    np.maximum.at(n_sums, parts["column"], parts["stride"] * parts["values"])
    cuts: list[tuple[int, int]] = []
    first = in_tile = 0
    for column in range(n_columns):
        in_tile += int(n_sums[column])
        if column - first == most_columns or (in_tile > _TILE_SUMS and column > first):
            cuts.append((first, column))
            first, in_tile = column, int(n_sums[column])
    return [*cuts, (first, n_columns)] if n_columns else cuts
