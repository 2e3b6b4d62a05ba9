"""Dropout of torch, whatever the ranks: what a row loses is a hash of (seed, step, position in the pass, row).

Torch draws from one generator in the order of the rows it sees, so the same batch on other ranks would lose other
values. While a module trains, its draws for dropout are answered here instead, whichever layer makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dmlgbm.gbdt.system.counter_random import hash_of, random_bits
from dmlgbm.neural.model import Pass

_DRAWS_IN_A_WORD = 4
_LEVELS = 1 << 16


class RowNoise(TorchDispatchMode):
    """Draws of one training pass."""

    def __init__(self, seed: int, pass_: Pass) -> None:
        super().__init__()
        self._seed = seed
        self._pass = pass_
        self._n_draws = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        rows = self._pass.row_numbers
        if func is torch.ops.aten.bernoulli_.float and args[0].dim() and args[0].shape[0] == len(rows):
            self._n_draws += 1
            return args[0].copy_(self._kept(args[0], float(args[1]) if len(args) > 1 else 0.5))
        if len(rows) != self._pass.n_rows:
            raise ValueError(
                f"module draws random numbers ({func}) that would differ with the number of ranks: several ranks take "
                f"dropout of arrays with one entry a row on their first axis. Use n_ranks=1, or a strategy that trains "
                f"on each rank's own rows, such as local_sgd"
            )
        return func(*args, **(kwargs or {}))

    def _kept(self, like: Any, share: float) -> Any:
        rows = self._pass.row_numbers
        width = like.numel() // max(1, len(rows))
        words = -(-width // _DRAWS_IN_A_WORD)
        key = hash_of(self._seed, "torch", self._pass.step, self._n_draws)
        numbers = np.add.outer(rows * words, np.arange(words)).astype(np.uint64)
        draws = random_bits(key, numbers).view(np.uint16)[:, :width]
        kept = draws.astype(np.int64) < round(share * _LEVELS)
        return torch.from_numpy(kept.reshape(tuple(like.shape)))
