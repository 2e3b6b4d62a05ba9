"""Which rows and which features a tree may use: pure functions of (seed, tree, row or feature)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.row_numbers import Segment
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key


def chosen_features(n_features: int, share: float, seed: int, tree: int) -> npt.NDArray[np.int64]:
    """A share of all features (at least one), ascending: those with the smallest keys."""
    everything = np.arange(n_features, dtype=np.int64)
    if share >= 1.0 or n_features == 0:
        return everything
    keys = [int(random_key(seed, Purpose.TREE_FEATURES, tree, feature)) for feature in range(n_features)]
    n_chosen = max(1, round(n_features * share))
    return np.sort(np.argsort(np.array(keys, np.uint64), kind="stable")[:n_chosen])


def bag_of(
    parameters: TrainParameters, iteration: int, segments: Sequence[Segment], target: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint32] | None:
    """The rows of this iteration's trees, or None for all of them. A bag is kept for `subsample_freq` iterations.

    A bag may be empty, here or everywhere: a tree over no rows is a leaf of value 0. Where the two classes have shares
    of their own, the target tells them apart.
    """
    if parameters.subsample_freq <= 0 or not (parameters.subsample < 1.0 or parameters.draws_classes):
        return None
    drawn_at = iteration - iteration % parameters.subsample_freq
    key = random_key(parameters.seed, Purpose.ROW_SAMPLE, drawn_at)
    if not parameters.draws_classes:
        return _drawn(segments, key, parameters.subsample)
    positive, negative = parameters.pos_bagging_fraction, parameters.neg_bagging_fraction
    # The same hash in both: what the smaller share draws, the larger one draws too.
    bag = _drawn(segments, key, max(positive, negative))
    in_smaller = np.zeros(len(target), bool)
    in_smaller[_drawn(segments, key, min(positive, negative))] = True
    is_positive = target[bag] > 0
    return bag[np.where(is_positive == (positive < negative), in_smaller[bag], True)]


def _drawn(segments: Sequence[Segment], key: np.uint64, share: float) -> npt.NDArray[np.uint32]:
    parts = [
        chosen_rows(segment.first_row_number, segment.n_rows, key, share) + np.uint32(segment.start)
        for segment in segments
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)
