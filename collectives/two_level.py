"""Ranks on several hosts: through memory inside a host, through sockets between one leader of each.

A reduction whose order does not matter is first made inside each host, then between the leaders, and spread inside
each host again, so each host's network carries every byte once instead of once a rank. Reductions whose order matters,
and everything that is not overridden here, use the sockets between all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from dmlgbm.collectives.communicator import CallGuard, Communicator
from dmlgbm.collectives.joining.groups import Regrouping
from dmlgbm.collectives.joining.negotiation import TlsContexts
from dmlgbm.collectives.reducers import Array, Reducer, find_reducer
from dmlgbm.collectives.session import Session


class TwoLevelCommunicator(Communicator):
    """`local` holds the ranks of this host, the first of which leads; `leaders` is None on the others."""

    def __init__(
        self,
        session: Session,
        timeout: float,
        hosts: Sequence[str],
        regrouping: Regrouping | None = None,
        tls: TlsContexts | None = None,
    ) -> None:
        super().__init__(session, timeout, hosts, regrouping, tls)
        self._groups: list[Communicator] = []
        # Hosts in the order of their first ranks, which is also the order of their leaders.
        self._host_names = list(dict.fromkeys(hosts))

    def set_groups(self, local: Communicator, leaders: Communicator | None) -> None:
        """The groups are made by splitting this very communicator, so it must exist before them."""
        self._local, self._leaders = local, leaders
        self._groups = [local] if leaders is None else [local, leaders]

    def all_reduce(
        self,
        array: Array,
        op: str | Reducer = "sum",
        *,
        algorithm: str | None = None,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        with _TwoLevelGuard(self, "all_reduce"):
            reducer = find_reducer(op)
            if algorithm is not None or not reducer.is_order_free(np.asarray(array).dtype):
                return super().all_reduce(array, op, algorithm=algorithm, out=out, timeout=timeout)
            total = self._local.reduce(array, op, 0, timeout=timeout)
            if self._leaders is not None and total is not None:
                total = self._leaders.all_reduce(total, op, timeout=timeout)
            return self._local.broadcast(np.asarray(array) if total is None else total, 0, out=out, timeout=timeout)

    def broadcast(
        self,
        array: Array,
        root: int = 0,
        *,
        algorithm: str | None = None,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        with _TwoLevelGuard(self, "broadcast"):
            self._check_rank(root, "root")
            if algorithm is not None:
                return super().broadcast(array, root, algorithm=algorithm, out=out, timeout=timeout)
            home = self.hosts[root]
            at_home = self.hosts[self.rank] == home
            local_root = [rank for rank, host in enumerate(self.hosts) if host == home].index(root)
            values = self._local.broadcast(array, local_root, timeout=timeout) if at_home else np.asarray(array)
            if self._leaders is not None:
                values = self._leaders.broadcast(values, self._host_names.index(home), timeout=timeout)
            if not at_home:
                values = self._local.broadcast(values, 0, timeout=timeout)
            if out is None:
                return values
            np.copyto(out, values, casting="no")
            return out

    def barrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> None:
        with _TwoLevelGuard(self, "barrier"):
            if algorithm is not None:
                super().barrier(algorithm=algorithm, timeout=timeout)
                return
            self._local.barrier(timeout=timeout)
            if self._leaders is not None:
                self._leaders.barrier(timeout=timeout)
            self._local.barrier(timeout=timeout)

    def abort(self, reason: str) -> None:
        for group in self._groups:
            group.abort(reason)
        super().abort(reason)

    def close(self) -> None:
        for group in self._groups:
            group.close()
        super().close()


class _TwoLevelGuard(CallGuard):
    """An error in one group must reach the ranks that wait in another: it ends all of them."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._communicator.abort(str(error))
        super().__exit__(kind, error, traceback)
