"""The communicator of a rank that is alone: every collective is the rank's own array.

It spares a fit in one process from loading the communication layer and the compiler behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class LoneCommunicator:
    """The calls of `dmlgbm.collectives.Communicator` that make sense for one rank."""

    rank = 0
    world_size = 1
    bytes_sent = 0
    hosts: tuple[str, ...] = ()
    tls: None = None

    def all_reduce(self, array: Array, op: Any = "sum", *, out: Array | None = None, **_: Any) -> Array:
        """The array itself, as a copy."""
        return self._given(array, out)

    def broadcast(self, array: Array, root: int = 0, *, out: Array | None = None, **_: Any) -> Array:
        """The array itself, as a copy."""
        return self._given(array, out)

    def all_gather(self, array: Array, *, out: Array | None = None, **_: Any) -> Array:
        """The array under a new first axis."""
        return self._given(np.asarray(array)[None], out)

    def all_gather_unequal(self, array: Array, **_: Any) -> list[Array]:
        """A list of the array."""
        return [np.array(array)]

    def barrier(self, **_: Any) -> None:
        """Nobody to wait for."""

    def start(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> _Done:
        """Make the call at once."""
        return _Done(call(*arguments, **options))

    def abort(self, reason: str) -> None:
        """Nobody to tell."""

    def close(self) -> None:
        """Nothing to give back."""

    @staticmethod
    def _given(array: Array, out: Array | None) -> Array:
        if out is None:
            return np.array(array)
        out[...] = array
        return out


class _Done:
    """A call that is over."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> Any:
        return self._result
