"""Servers and workers of a parameter server in processes of their own, killed at chosen points or from outside.

A point is (class name of a message, which one, "before" or "after" it is sent). The process kills itself there with
SIGKILL, so nothing is flushed or said goodbye to.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from dmlgbm.collectives.parameter_server import Membership, ParameterServer, Store, nodes
from dmlgbm.collectives.parameter_server.messages import Message
from dmlgbm.collectives.parameter_server.server_core import ServerCore

KillPoint = tuple[str, int, str]


def dying_core(point: KillPoint) -> type[ServerCore]:
    kind, which, when = point

    class DyingCore(ServerCore):
        seen = 0
        doomed = False

        def take(self) -> list[tuple[Hashable, Message]]:
            if self.doomed:
                os.kill(os.getpid(), signal.SIGKILL)
            outbox = super().take()
            for _, message in outbox:
                DyingCore.seen += type(message).__name__ == kind
                if DyingCore.seen == which:
                    if when == "before":
                        os.kill(os.getpid(), signal.SIGKILL)
                    self.doomed = True
            return outbox

    return DyingCore


def serve(record: Mapping[str, Any], point: KillPoint | None) -> None:
    if point is not None:
        nodes.ServerCore = dying_core(point)  # type: ignore[misc]
    with ParameterServer(Membership.from_dict(record)):
        time.sleep(600)


def step_forever(record: Mapping[str, Any], rank: int) -> None:
    """A worker that finishes steps until it is killed."""
    with Store(Membership.from_dict(record), rank, timeout=30.0) as store:
        store.init("n", np.zeros(4))
        while True:
            store.pull("n")
            store.push("n", np.ones(4))
            store.advance()


@contextmanager
def running(function: Any, *arguments: Any) -> Iterator[BaseProcess]:
    """A new process, gone when the block ends."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        process.close()
