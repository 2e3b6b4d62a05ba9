"""Starts ranks on this machine: threads of this process, or new processes that are gone when the call returns.

A rank is a function of a communicator. New processes bind a listener each and report its address; the parent makes
the record and hands it back over the private pipe of each child. A process that is gone, or gives no sign of life,
counts as lost. Whatever happens, every process is ended and waited for before the call returns.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from dmlgbm.collectives.communicator import Communicator
from dmlgbm.collectives.errors import AbortedError, PeerLostError, RankFailedError
from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.joining.in_process import Hub
from dmlgbm.collectives.joining.join import JoinOptions, join
from dmlgbm.collectives.joining.rank_processes import LISTENERS, Assignment, RankProcess, Said
from dmlgbm.collectives.joining.rendezvous import Rendezvous, this_host

RankFunction = Callable[..., Any]

# How long a process may be silent before it counts as lost. Its signs of life come much more often.
SILENCE_SECONDS = 60.0
_BEATS_IN_SILENCE = 12
_LONGEST_LOOK = 1.0
# What a rank that has reported gets to end by itself, and one that has not. On a busy machine it takes seconds until an
# interpreter that has nothing more to do is gone.
_SECONDS_TO_END = 20.0
_SECONDS_TO_LEAVE = 2.0


@dataclass
class Outcome:
    """How one rank ended: its result, or its error. The exit code of its process says nothing against a result."""

    rank: int
    result: Any = None
    error: BaseException | None = None
    exit_code: int | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None


def run_threads(
    function: RankFunction,
    world_size: int,
    arguments: Sequence[Any] = (),
    *,
    transport: str = "memory",
    options: JoinOptions | None = None,
) -> list[Any]:
    """The results of function(communicator, *arguments) on `world_size` threads of this process, in rank order.

    `transport` is memory, tcp, tcp6 or unix. If ranks fail, the first error is raised that is not a consequence of
    another one's.
    """
    options = JoinOptions() if options is None else options
    outcomes = [Outcome(rank) for rank in range(world_size)]
    with contextlib.ExitStack() as unused:
        joins = _thread_joins(world_size, transport, options, unused)

        def work(outcome: Outcome) -> None:
            try:
                with joins[outcome.rank]() as communicator:
                    outcome.result = function(communicator, *arguments)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                outcome.error = error

        with _started_together([partial(work, outcome) for outcome in outcomes]):
            unused.pop_all()  # ranks close what they join with
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise _cause(errors)
    return [outcome.result for outcome in outcomes]


@contextlib.contextmanager
def _started_together(ranks: Sequence[Callable[[], None]]) -> Iterator[None]:
    """A thread for each rank, until all have ended. None begins before the block or unless all could be started."""
    begin = threading.Event()
    wanted = False

    def run(rank: Callable[[], None]) -> None:
        begin.wait()
        if wanted:
            rank()

    threads: list[threading.Thread] = []
    try:
        for number, rank in enumerate(ranks):
            thread = threading.Thread(target=run, args=(rank,), name=f"rank-{number}")
            thread.start()
            threads.append(thread)
        yield
        wanted = True
    except RuntimeError as error:
        raise RankFailedError(
            f"no thread can be started for rank {len(threads)} of {len(ranks)} ({error}): ask for fewer ranks, or "
            "raise the limit on processes and threads (ulimit -u, or pids.max of the container)"
        ) from error
    finally:
        begin.set()
        for thread in threads:
            thread.join()


def _thread_joins(
    world_size: int, transport: str, options: JoinOptions, unused: contextlib.ExitStack
) -> list[Callable[[], Communicator]]:
    """For each rank the call that makes its communicator; what nobody has joined with is closed by `unused`."""
    if transport == "memory":
        hub = Hub(world_size, options.timeout, spin_microseconds=options.spin_microseconds)
        return [partial(hub.join, rank) for rank in range(world_size)]
    listeners = [unused.enter_context(_listener(transport)) for _ in range(world_size)]
    record = Rendezvous.create([str(each.address) for each in listeners], [this_host()] * world_size)
    return [partial(join, record, rank, listeners[rank], options) for rank in range(world_size)]


def _listener(transport: str) -> Listener:
    _check_transport(transport)
    return LISTENERS[transport]()


def _check_transport(transport: str) -> None:
    if transport not in LISTENERS:
        raise ValueError(f"transport must be one of {', '.join(LISTENERS)}, got {transport!r}")


def _cause(errors: Sequence[BaseException]) -> BaseException:
    """The error to show: one of the caller's own code before those that tell of another rank's, its end last."""
    own = [error for error in errors if not type(error).__module__.startswith("dmlgbm.collectives.")]
    telling = [error for error in errors if not isinstance(error, PeerLostError)]
    return (own or telling or list(errors))[0]


def run_processes(
    function: RankFunction,
    world_size: int,
    arguments: Sequence[Any] = (),
    *,
    transport: str = "tcp",
    options: JoinOptions | None = None,
    timeout: float | None = 120.0,
    silence_timeout: float = SILENCE_SECONDS,
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> list[Any]:
    """The results of function(communicator, *arguments) in `world_size` new processes, in rank order.

    The other arguments are those of `launch_processes`. If a rank fails, RankFailedError lists how every failed
    rank ended.
    """
    outcomes = launch_processes(
        function,
        world_size,
        arguments,
        transport=transport,
        options=options,
        timeout=timeout,
        silence_timeout=silence_timeout,
        dumps=dumps,
    )
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        lines = [f"rank {each.rank} ended with {each.error!r}, exit code {each.exit_code}" for each in failed]
        error = RankFailedError("\n".join(lines))
        raise error from _cause([each.error for each in failed if each.error is not None])
    return [outcome.result for outcome in outcomes]


def launch_processes(
    function: RankFunction,
    world_size: int,
    arguments: Sequence[Any] = (),
    *,
    transport: str = "tcp",
    options: JoinOptions | None = None,
    timeout: float | None = 120.0,
    silence_timeout: float = SILENCE_SECONDS,
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> list[Outcome]:
    """How every rank ended, also when some failed.

    A process is killed when it still runs after `timeout` seconds (None: it may take as long as it needs), or has given
    no sign of life for `silence_timeout` seconds, because it was stopped or could not start. New processes must be
    able to import the function; with `dumps=cloudpickle.dumps` it and its arguments may be defined anywhere.
    """
    _check_transport(transport)
    if not 0 < silence_timeout < float("inf"):
        raise ValueError(f"silence_timeout must be a finite number of seconds above 0, got {silence_timeout}")
    assignment = dumps(Assignment(transport, JoinOptions() if options is None else options, function, tuple(arguments)))
    launch = _Launch(world_size, silence_timeout, float("inf") if timeout is None else time.monotonic() + timeout)
    try:
        launch.start(assignment)
        launch.watch()
    finally:
        launch.end()
    return launch.outcomes


@dataclass
class _Launch:
    """The ranks of one launch until the last of them has ended."""

    world_size: int
    silence: float
    until: float
    outcomes: list[Outcome] = field(init=False)
    _processes: list[RankProcess] = field(init=False, default_factory=list)
    _waiting: dict[int, RankProcess] = field(init=False, default_factory=dict)
    _places: dict[int, tuple[str, str]] = field(init=False, default_factory=dict)
    _joined: set[int] = field(init=False, default_factory=set)
    _reported: set[int] = field(init=False, default_factory=set)
    _heard: SimpleQueue[tuple[int, Said, Any]] = field(init=False, default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.outcomes = [Outcome(rank) for rank in range(self.world_size)]

    def start(self, assignment: bytes) -> None:
        for rank in range(self.world_size):
            process = RankProcess(rank, assignment, self.silence / _BEATS_IN_SILENCE, self._heard)
            self._processes.append(process)
            self._waiting[rank] = process

    def watch(self) -> None:
        """Take what the ranks say until all have ended or are lost."""
        looked_at = time.monotonic()
        look = min(_LONGEST_LOOK, self.silence / _BEATS_IN_SILENCE)
        while self._waiting:
            try:
                said = self._heard.get(timeout=max(0.0, min(look, self.until - time.monotonic())))
            except Empty:
                said = None
            if said is not None and said[0] in self._waiting:
                self._take(*said)
            now = time.monotonic()
            if now - looked_at > look + self.silence / 2:
                # This process itself was stopped; what the others have said meanwhile is still to be read.
                for process in self._waiting.values():
                    process.heard_at = now
            looked_at = now
            self._give_up_late(now)

    def _take(self, rank: int, kind: Said, content: Any) -> None:
        if kind == Said.PLACE:
            self._places[rank] = content
            if len(self._places) == self.world_size:
                self._introduce()
        elif kind == Said.JOINED:
            self._joined.add(rank)
        elif kind == Said.END:
            self._reported.add(rank)
            outcome = self.outcomes[rank]
            outcome.result, outcome.error = content
            self._waiting.pop(rank)
            if rank not in self._joined:
                self._end_others(rank)
        else:
            self._lose(rank, self._how_gone(rank))

    def _introduce(self) -> None:
        places = [self._places[rank] for rank in range(self.world_size)]
        record = Rendezvous.create([place[0] for place in places], [place[1] for place in places]).as_dict()
        for process in self._waiting.values():
            process.tell(pickle.dumps(record))

    def _how_gone(self, rank: int) -> str:
        if rank in self._joined:
            return "ended without a result"
        if rank in self._places:
            return "ended before it had met the others"
        return (
            "ended before it had started; its stderr says why. "
            'A script that starts processes must do so under `if __name__ == "__main__":`'
        )

    def _give_up_late(self, now: float) -> None:
        for rank, process in list(self._waiting.items()):
            if now >= self.until:
                self._lose(rank, f"did not {'end' if rank in self._joined else 'start'} in time and was killed")
            elif now - process.heard_at >= self.silence:
                self._lose(
                    rank, f"gave no sign of life for {self.silence:g} s and was killed: was its process stopped?"
                )

    def _lose(self, rank: int, how: str) -> None:
        if rank not in self._waiting:
            return
        self._waiting.pop(rank).kill()
        self.outcomes[rank].error = RankFailedError(f"rank {rank} {how}")
        if len(self._joined) < self.world_size:
            self._end_others(rank)

    def _end_others(self, missing: int) -> None:
        """Ranks that wait for one which will never come."""
        for rank in list(self._waiting):
            self._waiting.pop(rank).kill()
            reason = f"rank {rank} was ended, because rank {missing} was lost before all ranks had met"
            self.outcomes[rank].error = AbortedError(reason, missing)

    def end(self) -> None:
        """Nothing stays behind, whatever has happened."""
        now = time.monotonic()
        for process in self._processes:
            seconds = _SECONDS_TO_END if process.rank in self._reported else _SECONDS_TO_LEAVE
            self.outcomes[process.rank].exit_code = process.end(now + seconds)
