"""Calls of functions on workers, beside their tasks: whoever does not answer in time is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dmlgbm.dask_backend.heartbeats import WorkerWatch

# A worker that is silent is given up by the watch, which ends calls to it. One that has heartbeats gets more time: on a
# machine with too few cores it may take long to import what the call needs.
_TIMES_LONGER = 4


async def answers_of(
    client: Any, watch: WorkerWatch, workers: Sequence[str], function: Callable[..., Any], arguments: Sequence[Any]
) -> dict[str, Any]:
    """function(*arguments) on each worker, asked side by side. Workers that are gone or silent are not in the result.

    What a function raises is raised here. A worker that does not answer in time is given up, so that nobody finds it
    later in a state that this call would have changed.
    """
    calls = {
        worker: asyncio.ensure_future(client.run(function, *arguments, workers=[worker], on_error="return"))
        for worker in workers
    }
    if not calls:
        return {}
    try:
        seconds = _TIMES_LONGER * watch.seconds
        _, silent = await asyncio.wait(calls.values(), timeout=seconds)
        late = [worker for worker, call in calls.items() if call in silent]
        reason = f"did not answer a call within {seconds:g} s ({_TIMES_LONGER} times worker_timeout)"
        await asyncio.gather(*(watch.give_up(worker, reason) for worker in late), return_exceptions=True)
        answers: dict[str, Any] = {}
        for call in calls.values():
            if call not in silent:
                answers.update(call.result())
    finally:
        for call in calls.values():
            call.cancel()
        await asyncio.gather(*calls.values(), return_exceptions=True)
    for answer in answers.values():
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            raise answer
    return {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
