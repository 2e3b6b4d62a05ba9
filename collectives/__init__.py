"""Collectives between processes or threads: communicator, transports, compression, parameter server."""

from __future__ import annotations

from dmlgbm.collectives.communicator import Communicator
from dmlgbm.collectives.errors import (
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
from dmlgbm.collectives.handles import Handle
from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.joining.in_process import Hub
from dmlgbm.collectives.joining.join import JoinOptions, join
from dmlgbm.collectives.joining.negotiation import TlsContexts
from dmlgbm.collectives.joining.rendezvous import Rendezvous, this_host
from dmlgbm.collectives.reducers import Reducer
from dmlgbm.collectives.schedules.choice import all_reduce_bytes

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
