"""A communicator over MPI (mpi4py), for programs that MPI has started."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgbm.collectives.adapters.messages import MessageTransport, session_over
from dmlgbm.collectives.communicator import DEFAULT_TIMEOUT, Communicator


def mpi_communicator(comm: Any = None, timeout: float = DEFAULT_TIMEOUT) -> Communicator:
    """The ranks of an mpi4py communicator (all of them by default) behind the interface of this package."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError("mpi_communicator needs mpi4py and an MPI library: pip install mpi4py mpich") from error
    return Communicator(
        session_over(_MpiTransport(MPI, (MPI.COMM_WORLD if comm is None else comm).Dup()), "mpi"), timeout
    )


class _MpiTransport(MessageTransport):
    def __init__(self, library: Any, comm: Any) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._library = library
        self._comm = comm
        self._sending: list[tuple[Any, bytes]] = []

    def post(self, peer: int, message: bytes) -> None:
        self._sending = [(request, data) for request, data in self._sending if not request.Test()]
        self._sending.append((self._comm.Isend([message, self._library.BYTE], dest=peer), message))

    def collect(self, peer: int) -> bytes:
        status = self._library.Status()
        if not self._comm.Iprobe(source=peer, status=status):
            return b""
        data = np.empty(status.Get_count(self._library.BYTE), np.uint8)
        self._comm.Recv([data, self._library.BYTE], source=peer)
        return data.tobytes()

    def close(self) -> None:
        """Let go of the communicator; MPI itself delivers or drops what is still on its way."""
        self._sending = [(request, data) for request, data in self._sending if not request.Test()]
        for request, _ in self._sending:
            request.Free()
