"""What a finished tree does to its rows: exact sums of true gradients by leaf, and new scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import kernel


@kernel
def sum_leaf(
    rows: npt.NDArray[np.uint32], start: int, stop: int, values: npt.NDArray[np.float32], scale: float
) -> int:
    """The fixed-point sum of values[rows[start:stop]]: each value times `scale`, rounded to an integer."""
    total = np.int64(0)
    for i in range(np.uint64(start), np.uint64(stop)):
        total += np.int64(np.floor(float(values[np.uint64(rows[i])]) * scale + 0.5))
    return total


@kernel
def add_to_rows(
    rows: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    leaf_values: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
) -> None:
    """Add each leaf's value to the scores of its rows."""
    for leaf in range(leaf_values.size):
        value = leaf_values[leaf]
        for i in range(np.uint64(starts[leaf]), np.uint64(starts[leaf] + counts[leaf])):
            scores[np.uint64(rows[i])] += value


@kernel
def sum_leaves(
    rows: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    gradient_scale: float,
    hessian_scale: float,
    sums: npt.NDArray[np.int64],
) -> None:
    """Fixed-point gradient and hessian sums of each leaf; the count is the hessian when there are no hessians."""
    for leaf in range(starts.size):
        start, stop = starts[leaf], starts[leaf] + counts[leaf]
        sums[leaf, 0] = sum_leaf(rows, start, stop, gradients, gradient_scale)
        if hessians.size == 0:
            sums[leaf, 1] = counts[leaf]
        else:
            sums[leaf, 1] = sum_leaf(rows, start, stop, hessians, hessian_scale)
