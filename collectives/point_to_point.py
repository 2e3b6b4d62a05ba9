"""Messages between two ranks: one sends, one receives, or both at once.

They share the connections of the collectives and are numbered apart, for each pair and direction. Between two ranks
everything arrives in order, so the receiver must ask for what the sender sent next.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.collectives.call_work import header_table
from dmlgbm.collectives.frames import Header, Kind, Operation, dtype_code
from dmlgbm.collectives.kernels.layout import SOURCE, TARGET
from dmlgbm.collectives.reducers import Array
from dmlgbm.collectives.schedules.program import ProgramBuilder
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.transports.contract import Work

_BYTE = np.dtype(np.uint8)
_NOTHING = np.empty(0, _BYTE)


class PointToPoint:
    """Counts the messages to and from each rank, and moves them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sent = [0] * session.world_size
        self._received = [0] * session.world_size

    def exchange(
        self, outgoing: Array, destination: int | None, incoming: Array, source: int | None, tag: int, timeout: float
    ) -> None:
        """Send and receive flat arrays side by side; a rank that is None leaves out that half."""
        builder, headers, numbers, names = ProgramBuilder(), [], [], []
        if destination is not None:
            builder.send(destination, SOURCE, 0, outgoing.nbytes)
            headers.append(self._header(outgoing, tag))
            numbers.append(self._sent[destination])
            names.append(f"send to rank {destination} (message {numbers[-1]}, tag {tag})")
        if source is not None:
            builder.receive(source, TARGET, 0, incoming.nbytes)
            headers.append(self._header(incoming, tag))
            numbers.append(self._received[source])
            names.append(f"recv from rank {source} (message {numbers[-1]}, tag {tag})")
        rows = builder.build().rows
        table = np.concatenate([header_table(header, rows[[k]], 1) for k, header in enumerate(headers)])
        work = Work(rows, table, _BYTE, None)
        work.start(np.array(numbers), [outgoing.view(_BYTE), incoming.view(_BYTE), _NOTHING])
        self._session.run(work, " with ".join(names), timeout)
        if destination is not None:
            self._sent[destination] += 1
        if source is not None:
            self._received[source] += 1

    def _header(self, array: Array, tag: int) -> Header:
        session = self._session
        return Header(
            Kind.DATA,
            session.number,
            session.generation,
            session.rank,
            operation=Operation.SEND,
            dtype=dtype_code(array.dtype),
            count=len(array),
            root=tag,
        )
