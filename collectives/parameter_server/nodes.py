"""The coordinator and the servers as objects: a listener, a core and the threads that run it.

Both live in the process that makes them, beside workers or apart from them.
"""

from __future__ import annotations

import secrets
import time
from types import TracebackType
from typing import Any, Self

from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.joining.negotiation import Security, TlsContexts
from dmlgbm.collectives.parameter_server.coordinator_core import CoordinatorCore, StorePlan
from dmlgbm.collectives.parameter_server.membership import MAXIMUM_MESSAGE_BYTES, Membership
from dmlgbm.collectives.parameter_server.reactor import Reactor
from dmlgbm.collectives.parameter_server.server_core import ServerCore
from dmlgbm.collectives.parameter_server.view import View

_POLL_SECONDS = 0.02


class _Node:
    """Something that runs until it is closed."""

    _reactor: Reactor

    def close(self) -> None:
        """End the node at once. Closing twice does nothing."""
        self._reactor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Coordinator(_Node):
    """Decides which server holds what and who takes part. `membership` is what servers and workers need."""

    def __init__(
        self,
        plan: StorePlan,
        listener: Listener | None = None,
        *,
        tls: TlsContexts | None = None,
        generation: int = 0,
        maximum_message_bytes: int = MAXIMUM_MESSAGE_BYTES,
    ) -> None:
        listener = Listener.tcp() if listener is None else listener
        security = Security(secrets.token_hex(8), secrets.token_bytes(32), tls)
        self.membership = Membership(str(listener.address), security, generation, maximum_message_bytes)
        self._core = CoordinatorCore(plan)
        self._reactor = Reactor("coordinator", self._core, self.membership, listener)
        self._reactor.start()

    @property
    def view(self) -> View:
        """The newest table of servers and workers."""
        return self._core.view


class ParameterServer(_Node):
    """Holds the shards that the coordinator gives it."""

    def __init__(self, membership: Membership, listener: Listener | None = None) -> None:
        listener = Listener.tcp() if listener is None else listener
        self._core = ServerCore(secrets.randbits(62), str(listener.address))
        self._reactor = Reactor("server", self._core, membership, listener, statistics=self._core.statistics)
        self._reactor.start()

    @property
    def number(self) -> int:
        """The number the coordinator gave this server, negative until it did."""
        return self._core.number

    @property
    def bytes_sent(self) -> int:
        """What this server has sent so far, to workers and to other servers."""
        return self._reactor.bytes_sent

    def statistics(self) -> dict[str, Any]:
        """What this server has counted so far."""
        counts: dict[str, Any] = self._reactor.use(lambda core: core.statistics.as_dict())
        return counts

    def leave(self, timeout: float = 30.0) -> bool:
        """Hand all shards over to other servers; False if that did not happen in time. Close the server afterwards."""
        until = time.monotonic() + timeout
        self._reactor.use(lambda core: core.leave(time.monotonic()))
        while not self._core.has_left and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return self._core.has_left
