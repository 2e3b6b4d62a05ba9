"""Collectives between processes or threads: communicator, transports, compression, parameter server."""

from __future__ import annotations

from collectives.addresses import Listener
from collectives.communicator import Communicator
from collectives.errors import (
    AbortedError,
    AuthenticationError,
    ClosedError,
    CollectiveError,
    CollectiveTimeout,
    MismatchError,
    PeerLostError,
    ProtocolError,
    RankFailedError,
    StaleGenerationError,
)
from collectives.handles import Handle
from collectives.in_process import Hub
from collectives.joining import JoinOptions, join
from collectives.negotiation import TlsContexts
from collectives.reducers import Reducer
from collectives.rendezvous import Rendezvous, this_host
from collectives.schedules.choice import all_reduce_bytes

__all__ = [
    "AbortedError",
    "AuthenticationError",
    "ClosedError",
    "CollectiveError",
    "CollectiveTimeout",
    "Communicator",
    "Handle",
    "Hub",
    "JoinOptions",
    "Listener",
    "MismatchError",
    "PeerLostError",
    "ProtocolError",
    "RankFailedError",
    "Reducer",
    "Rendezvous",
    "StaleGenerationError",
    "TlsContexts",
    "all_reduce_bytes",
    "join",
    "this_host",
]
