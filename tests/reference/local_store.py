"""A parameter server with all its parts in this process, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.parameter_server import (
    Coordinator,
    Membership,
    ParameterServer,
    Store,
    StorePlan,
    asp,
)


@contextmanager
def serving(
    listen: Callable[[], Listener] = Listener.tcp, **plan: Any
) -> Iterator[tuple[Membership, list[ParameterServer]]]:
    layout = StorePlan(**{"consistency": asp(), "n_shards": 5, **plan})
    with ExitStack() as stack:
        membership = stack.enter_context(Coordinator(layout, listen())).membership
        servers = [stack.enter_context(ParameterServer(membership, listen())) for _ in range(layout.n_servers)]
        yield membership, servers


def on_workers(membership: Membership, n_workers: int, work: Callable[[Store], Any]) -> list[Any]:
    """Results of work(store) on so many workers at once, in rank order."""

    def run(rank: int) -> Any:
        with Store(membership, rank, timeout=20.0) as store:
            return work(store)

    with ThreadPoolExecutor(n_workers) as pool:
        return list(pool.map(run, range(n_workers)))
