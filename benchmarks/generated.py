"""Generated rows for the start-up and small-data benchmarks: numpy only, so that importing this costs nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

N_SMALL_ROWS = 1_000
N_SMALL_FEATURES = 20


def generate_rows(n_rows: int, n_features: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Normal features and a noisy binary target that needs an interaction and a threshold to be learnt."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n_rows, n_features))
    signal = features[:, 0] * features[:, 1] + np.where(features[:, 2] > 0.5, 1.5, -0.5) + 0.5 * features[:, 3]
    target = signal + generator.normal(scale=0.5, size=n_rows) > 0.0
    return features, target.astype(np.int32)
