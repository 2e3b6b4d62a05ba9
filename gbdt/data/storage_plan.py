"""Which feature is stored where: a byte or two a row, a byte shared with others, or sparse entries.

Features that are never away from their usual bin in the same row can share one column exactly. Who may share
is guessed from the sample by greedy colouring and checked on every row while the data are binned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.feature_bins import CategoricalBins, FeatureBins
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


@dataclass(frozen=True)
class SampledFeature:
    """What the sample says of a feature: its usual bin and the sampled rows that are away from it."""

    usual_bin: int
    away: npt.NDArray[np.uint8]  # one bit a sampled row
    share_away: float


@dataclass(frozen=True)
class StoragePlan:
    """The layout of the used features (in `features`), and the features of each column and tile."""

    layout: RecordArray
    features: npt.NDArray[np.int64]
    narrow_columns: tuple[tuple[int, ...], ...]  # indices into `features` that share a column
    wide_columns: tuple[int, ...]
    sparse_tiles: tuple[tuple[int, ...], ...]
    positions: npt.NDArray[np.uint32]
    n_positions: int
    tiles: RecordArray
    tile_features: npt.NDArray[np.int64]


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
    narrow = [(f,) for f in dense if bins[f].n_bins <= _NARROW_VALUES] + [tuple(column) for column in shared]
    wide = [f for f in dense if bins[f].n_bins > _NARROW_VALUES]
    return _laid_out(bins, sampled, sorted(features), sorted(narrow), wide, _tiles(bins, sparse))


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
    narrow: Sequence[tuple[int, ...]],
    wide: Sequence[int],
    tiles: Sequence[Sequence[int]],
) -> StoragePlan:
    index_of = {feature: k for k, feature in enumerate(features)}
    layout = np.zeros(len(features), FEATURE)
    positions: list[int] = []
    position = 0
    groups: list[tuple[int, list[list[int]]]] = [
        (NARROW, [list(column) for column in narrow]),
        (WIDE, [[feature] for feature in wide]),
        (SPARSE, [list(tile) for tile in tiles]),
    ]
    for storage, columns in groups:
        for column, members in enumerate(columns):
            positions.append(position)
            implicit = storage == SPARSE or len(members) > 1
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
                )
                value += stored
            position += value
    cut, tile_features = cut_tiles(layout, positions, position)
    return StoragePlan(
        layout=layout,
        features=np.array(features, np.int64),
        narrow_columns=tuple(tuple(index_of[f] for f in column) for column in narrow),
        wide_columns=tuple(index_of[f] for f in wide),
        sparse_tiles=tuple(tuple(index_of[f] for f in tile) for tile in tiles),
        positions=np.array(positions, np.uint32),
        n_positions=position,
        tiles=cut,
        tile_features=tile_features,
    )


def cut_tiles(layout: RecordArray, positions: Sequence[int], end: int) -> tuple[RecordArray, npt.NDArray[np.int64]]:
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
        for first in range(0, n_columns, step):
            last = min(first + step, n_columns)
            members = own[(columns >= first) & (columns < last)]
            tiles.append(
                (storage, first, last, starts[first], starts[last], len(features), len(features) + len(members))
            )
            features.extend(members.tolist())
        before += n_columns
    return np.array(tiles, TILE), np.array(features, np.int64)
