"""Every message of the protocol, as plain records.

Four conversations: a worker updates and reads shards; servers pass updates down a chain and acknowledgements up;
servers and workers tell the coordinator that they live and get views; and a copy of a shard travels to a new server
or into a file. `MESSAGES` numbers them for the wire.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from enum import IntEnum

from dmlgbm.collectives.parameter_server.codec import Array
from dmlgbm.collectives.parameter_server.view import View


class Status(IntEnum):
    """How a request ended."""

    DONE = 0
    LATE = 1  # a push for a step that is over; it was dropped
    UNKNOWN_KEY = 2
    MISMATCH = 3
    REFUSED = 4
    EXPIRED = 5  # the worker does not belong to the session any more
    TIMEOUT = 6
    CLOSED = 7  # never sent: the worker itself ended the request


@dataclass(frozen=True)
class KeySpec:
    """What a key holds. A table has `n_rows` rows of `shape`, made when first pushed; a dense array has n_rows = 0."""

    shape: tuple[int, ...]
    n_rows: int
    dtype: str
    parts: int
    fill: float
    optimiser: str
    settings: tuple[float, ...]


# What an update does to a shard.


@dataclass(frozen=True)
class Join:
    """The worker takes part from now on, at the highest clock of the shard."""


@dataclass(frozen=True)
class Leave:
    """The worker is gone; made by the head of a chain, never by a worker."""


@dataclass(frozen=True)
class Init:
    """Make a key, unless it is there."""

    key: str
    part: int
    spec: KeySpec
    value: Array


@dataclass(frozen=True)
class CodedValues:
    """Values of a dense array through a codec: pieces of so many numbers, padded to whole words, then some as they are.

    `settings` are the codec's own, as JSON.
    """

    codec: str
    settings: str
    lengths: tuple[int, ...]
    bodies: Array
    rest: Array


@dataclass(frozen=True)
class Push:
    """Values for a dense array (rows is None) or for rows of a table."""

    key: str
    part: int
    clock: int
    rows: Array | None
    values: Array | CodedValues


@dataclass(frozen=True)
class Advance:
    """The worker has finished all steps before `clock`."""

    clock: int


@dataclass(frozen=True)
class Outcome:
    """What an update led to; `clock` is what all workers that count have reached, or where a joiner starts."""

    status: int
    clock: int
    text: str


# The copy of a shard.


@dataclass(frozen=True)
class TableCopy:
    """One part of a key with the state of its optimiser."""

    key: str
    part: int
    spec: KeySpec
    row_numbers: Array
    values: Array
    slots: Array
    steps: Array


@dataclass(frozen=True)
class WindowCopy:
    """Which updates of a worker were applied, and what came of those it may still ask about."""

    worker: int
    last: int
    outcomes: tuple[tuple[int, Outcome], ...]


@dataclass(frozen=True)
class ShardCopy:
    """A whole shard; `held` are pushes of steps that are not over."""

    index: int
    frontier: int
    tables: tuple[TableCopy, ...]
    clocks: tuple[tuple[int, int], ...]
    windows: tuple[WindowCopy, ...]
    held: tuple[tuple[int, Push], ...]


@dataclass(frozen=True)
class Restore:
    """Replace the tables of a shard by those of a snapshot."""

    copy: ShardCopy


Action = Join | Leave | Init | Push | Advance | Restore


# What a read asks for.


@dataclass(frozen=True)
class Pull:
    """Values of a dense array (rows is None) or of rows, once the workers have reached `min_clock`."""

    key: str
    part: int
    clock: int
    min_clock: int
    rows: Array | None


@dataclass(frozen=True)
class PullChanges:
    """What of a key changed after update number `since` of its shard, once the workers have reached `min_clock`."""

    key: str
    part: int
    clock: int
    min_clock: int
    since: int


@dataclass(frozen=True)
class Describe:
    """What a key holds."""

    key: str


@dataclass(frozen=True)
class Export:
    """A copy of the whole shard."""


@dataclass(frozen=True)
class Count:
    """The statistics of the server, as JSON."""


@dataclass(frozen=True)
class Changes:
    """Values of a part of a key as of update number `index`: of these positions, or of all where `positions` is None.

    A position is one number of a dense array, or one row of a table. `complete` says that all other rows hold the fill
    value.
    """

    index: int
    complete: bool
    positions: Array | None
    values: Array


Query = Pull | PullChanges | Describe | Export | Count
Answer = Array | Changes | KeySpec | ShardCopy | str | None


# Workers and servers.


@dataclass(frozen=True)
class Update:
    """A worker's update number `sequence` of a shard; it will never ask about updates before `floor` again."""

    version: int
    shard: int
    worker: int
    sequence: int
    floor: int
    action: Action


@dataclass(frozen=True)
class Updated:
    """The outcome of an update that all copies of the shard hold."""

    shard: int
    sequence: int
    outcome: Outcome


@dataclass(frozen=True)
class Read:
    """A worker's read; it must see the worker's own updates up to `after`, and may wait `patience` seconds."""

    version: int
    shard: int
    worker: int
    number: int
    after: int
    patience: float
    query: Query


@dataclass(frozen=True)
class Answered:
    """What a read found, or why not."""

    number: int
    outcome: Outcome
    answer: Answer
    missing: tuple[int, ...] = ()  # workers whose clocks were waited for in vain


@dataclass(frozen=True)
class NotHere:
    """The server does not take requests for the shard; its view has the given version."""

    version: int
    shard: int


# Servers among themselves.


@dataclass(frozen=True)
class Replicate:
    """Update number `index` of a shard, for the next server of its chain."""

    version: int
    shard: int
    index: int
    worker: int
    sequence: int
    floor: int
    action: Action


@dataclass(frozen=True)
class Copied:
    """Every server from this one to the end of the chain holds the updates up to `index`."""

    version: int
    shard: int
    server: int
    index: int


@dataclass(frozen=True)
class Fill:
    """The copy of a shard for a server that joins its chain."""

    version: int
    shard: int
    copy: ShardCopy


# Everybody and the coordinator.


@dataclass(frozen=True)
class Register:
    """A new server; `token` tells repeated messages of one server from those of another."""

    token: int
    address: str


@dataclass(frozen=True)
class Registered:
    server: int


@dataclass(frozen=True)
class ServerAlive:
    """`sent` is the server's own time; `filled` are (shard, joining server) pairs that hold everything done."""

    server: int
    version: int
    sent: float
    leaving: bool
    filled: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Lease:
    """The server will not be replaced within the lease after `sent`."""

    sent: float


@dataclass(frozen=True)
class Enrol:
    """A new worker; sums over workers are made in the order of ranks. A negative rank takes the next free one."""

    token: int
    rank: int


@dataclass(frozen=True)
class Enrolled:
    """The number of the worker and the time of silence after which it is taken for dead, or why it cannot take part."""

    token: int
    worker: int
    deadline_seconds: float
    refusal: str


@dataclass(frozen=True)
class WorkerAlive:
    """`joined` says that every shard knows the worker."""

    worker: int
    version: int
    joined: bool
    leaving: bool


Message = (
    Update | Updated | Read | Answered | NotHere | Replicate | Copied | Fill
    | Register | Registered | ServerAlive | Lease | Enrol | Enrolled | WorkerAlive | View
)  # fmt: skip
MESSAGES: tuple[type[Message], ...] = typing.get_args(Message)
