"""A communicator over torch's gloo, for programs that have called `torch.distributed.init_process_group`."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from dmlgbm.collectives.adapters.messages import MessageTransport, session_over
from dmlgbm.collectives.communicator import DEFAULT_TIMEOUT, Communicator
from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.frames import Kind, decode
from dmlgbm.collectives.kernels.layout import HEADER_BYTES

_CLOSE_SECONDS = 5.0


def gloo_communicator(group: Any = None, timeout: float = DEFAULT_TIMEOUT) -> Communicator:
    """The ranks of a gloo process group (the default one unless given) behind the interface of this package."""
    try:
        import torch
        from torch import distributed
    except ImportError as error:
        raise ImportError("gloo_communicator needs torch: pip install torch") from error
    if not distributed.is_initialized() or distributed.get_backend(group) != "gloo":
        raise ValueError("gloo_communicator needs torch.distributed.init_process_group('gloo', ...) first")
    return Communicator(session_over(_GlooTransport(torch, group), "gloo"), timeout)


class _GlooTransport(MessageTransport):
    """A thread for each peer receives, because gloo can only be waited for; it ends with the peer's last frame.

    gloo must be told the size of what it receives, so headers and payloads are messages of their own.
    """

    def __init__(self, torch: Any, group: Any) -> None:
        super().__init__(torch.distributed.get_rank(group), torch.distributed.get_world_size(group))
        self._torch = torch
        self._group = group
        self._arrived: dict[int, queue.SimpleQueue[bytes]] = {peer: queue.SimpleQueue() for peer in self._streams}
        self._threads = [
            threading.Thread(target=self._receive_all, args=(peer,), name=f"gloo-from-{peer}", daemon=True)
            for peer in self._streams
        ]
        for thread in self._threads:
            thread.start()

    def post(self, peer: int, message: bytes) -> None:
        for part in (message[:HEADER_BYTES], message[HEADER_BYTES:]):
            if part:
                data = self._torch.frombuffer(bytearray(part), dtype=self._torch.uint8)
                with contextlib.suppress(RuntimeError):  # a peer that is gone shows as one that does not answer
                    self._torch.distributed.send(data, group=self._group, group_dst=peer)

    def collect(self, peer: int) -> bytes:
        with contextlib.suppress(queue.Empty):
            return self._arrived[peer].get_nowait()
        return b""

    def _receive_all(self, peer: int) -> None:
        with contextlib.suppress(RuntimeError, ProtocolError):
            kind = Kind.DATA
            while kind not in (Kind.ABORT, Kind.GOODBYE):
                message = self._receive(peer, HEADER_BYTES)
                header = decode(message)
                kind = Kind(header.kind)
                self._arrived[peer].put(message)
                if header.payload:
                    self._arrived[peer].put(self._receive(peer, header.payload))

    def _receive(self, peer: int, size: int) -> bytes:
        data = self._torch.empty(size, dtype=self._torch.uint8)
        self._torch.distributed.recv(data, group=self._group, group_src=peer)
        message: bytes = data.numpy().tobytes()
        return message

    def close(self) -> None:
        """Wait a moment for the peers' last frames; the process group belongs to the caller, who destroys it."""
        until = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
