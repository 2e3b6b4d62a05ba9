"""Turns an authenticated mesh of sockets between the ranks of one host into rings in shared memory."""

from __future__ import annotations

import os
import socket

import numpy as np

from dmlgbm.collectives.communicator import Communicator
from dmlgbm.collectives.errors import CollectiveError
from dmlgbm.collectives.frames import session_number
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.transports.contract import Transport
from dmlgbm.collectives.transports.rings import RingArea, RingTransport, create_shared_area, open_shared_area
from dmlgbm.collectives.transports.sockets import socket_transport


def share_memory(
    rank: int, connections: dict[int, socket.socket], timeout: float, spin_microseconds: int = 0
) -> Transport:
    """The first rank makes the memory, the others open it; the sockets stay open to show who is alive."""
    sockets = socket_transport(rank, connections)
    world_size = sockets.world_size
    bootstrap = Communicator(Session(sockets, "shared memory", session_number("shared memory"), 0), timeout)
    if rank == 0:
        mapping, descriptor, size = create_shared_area(world_size)
        try:
            bootstrap.broadcast(np.array([os.getpid(), descriptor, size], np.int64))
            bootstrap.barrier()  # after which nobody needs the descriptor
        finally:
            os.close(descriptor)
    else:
        process, descriptor, size = bootstrap.broadcast(np.zeros(3, np.int64)).tolist()
        try:
            mapping = open_shared_area(process, descriptor, RingArea.size(world_size, size))
        except CollectiveError as error:
            bootstrap.abort(str(error))
            raise
        bootstrap.barrier()
    sockets.release()
    return RingTransport(rank, world_size, RingArea.over(mapping, world_size, size), connections, spin_microseconds)
