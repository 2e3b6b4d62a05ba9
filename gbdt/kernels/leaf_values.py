"""What a finished tree does to its rows: exact sums of true gradients by leaf, and new scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import inlined, kernel


@inlined
def rounded(value: np.float32, scale: float) -> int:
    """The nearest integer to value times scale."""
    return np.int64(np.floor(float(value) * scale + 0.5))


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
        start, stop = np.uint64(starts[leaf]), np.uint64(starts[leaf] + counts[leaf])
        gradient, hessian = np.int64(0), np.int64(0)
        if hessians.size == 0:
            hessian = counts[leaf]
            for i in range(start, stop):
                gradient += rounded(gradients[np.uint64(rows[i])], gradient_scale)
        else:
            for i in range(start, stop):
                row = np.uint64(rows[i])
                gradient += rounded(gradients[row], gradient_scale)
                hessian += rounded(hessians[row], hessian_scale)
        sums[leaf, 0], sums[leaf, 1] = gradient, hessian
