"""Fits for asynchronous clients: what would wait in the event loop runs in a thread beside it, and can be awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dmlgbm.dask_backend.cluster import client_of

Fitted = TypeVar("Fitted")


class Stop:
    """A callback that ends training once its fit is no longer awaited."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, state: Any) -> None:
        if self.asked.is_set():
            raise asyncio.CancelledError("the fit was cancelled")


def asynchronous_client(collections: Sequence[Any], given: Any) -> Any:
    """The client that a fit of these collections would use, if this is a call on its event loop; else None."""
    client = client_of(collections, given)
    return client if client is not None and client.asynchronous else None


async def fitted_in_thread(fit: Callable[[Stop], Fitted]) -> Fitted:
    """fit(stop) in a thread. Where this is cancelled, training ends after the iteration it is at."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(fit, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.asked.set()
        await asyncio.wait({running})
        raise
