"""Starts ranks on this machine: threads of this process, or new processes that are gone when the call returns.

A rank is a function of a communicator. New processes bind a listener each and report its address; the parent makes
the record and hands it back over the private pipe of each child. Whatever happens, every process is ended and
waited for before the call returns.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from collectives.addresses import Listener
from collectives.communicator import Communicator
from collectives.errors import PeerLostError, RankFailedError
from collectives.in_process import Hub
from collectives.joining import JoinOptions, join
from collectives.rendezvous import Rendezvous, this_host
from collectives.spawning import SpawnedProcess

RankFunction = Callable[..., Any]

_LISTENERS: dict[str, Callable[[], Listener]] = {
    "tcp": Listener.tcp,
    "tcp6": lambda: Listener.tcp("::1"),
    "unix": Listener.unix,
}


# What a rank that has reported gets to end by itself, and one that has not.
_SECONDS_TO_END = 20.0
_SECONDS_TO_DIE = 2.0


@dataclass
class Outcome:
    """How one rank ended: its result, or its error, or the exit code of a process that could not say anything."""

    rank: int
    result: Any = None
    error: BaseException | None = None
    exit_code: int | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None or self.exit_code not in (None, 0)


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
    joins = _thread_joins(world_size, transport, options)
    outcomes = [Outcome(rank) for rank in range(world_size)]

    def work(outcome: Outcome) -> None:
        try:
            with joins[outcome.rank]() as communicator:
                outcome.result = function(communicator, *arguments)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            outcome.error = error

    threads = [threading.Thread(target=work, args=(outcome,), name=f"rank-{outcome.rank}") for outcome in outcomes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise _cause(errors)
    return [outcome.result for outcome in outcomes]


def _thread_joins(world_size: int, transport: str, options: JoinOptions) -> list[Callable[[], Communicator]]:
    """For each rank the call that makes its communicator."""
    if transport == "memory":
        hub = Hub(world_size, options.timeout, spin_microseconds=options.spin_microseconds)
        return [partial(hub.join, rank) for rank in range(world_size)]
    listeners = [_listener(transport) for _ in range(world_size)]
    record = Rendezvous.create([str(each.address) for each in listeners], [this_host()] * world_size)
    return [partial(join, record, rank, listeners[rank], options) for rank in range(world_size)]


def _listener(transport: str) -> Listener:
    if transport not in _LISTENERS:
        raise ValueError(f"transport must be one of {', '.join(_LISTENERS)}, got {transport!r}")
    return _LISTENERS[transport]()


def _cause(errors: Sequence[BaseException]) -> BaseException:
    """The error to show: one of the caller's own code before those that tell of another rank's, its end last."""
    own = [error for error in errors if not type(error).__module__.startswith("collectives.")]
    telling = [error for error in errors if not isinstance(error, PeerLostError)]
    return (own or telling or list(errors))[0]


def run_processes(
    function: RankFunction,
    world_size: int,
    arguments: Sequence[Any] = (),
    *,
    transport: str = "tcp",
    options: JoinOptions | None = None,
    timeout: float = 120.0,
) -> list[Any]:
    """The results of function(communicator, *arguments) in `world_size` new processes, in rank order.

    The function must be importable by the new processes. If a rank fails, RankFailedError lists how every failed
    rank ended.
    """
    outcomes = launch_processes(function, world_size, arguments, transport=transport, options=options, timeout=timeout)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        lines = [f"rank {each.rank} ended with {each.error or f'exit code {each.exit_code}'!r}" for each in failed]
        error = RankFailedError("\n".join(lines))
        raise error from _cause([each.error for each in failed if each.error is not None] or [error])
    return [outcome.result for outcome in outcomes]


def launch_processes(
    function: RankFunction,
    world_size: int,
    arguments: Sequence[Any] = (),
    *,
    transport: str = "tcp",
    options: JoinOptions | None = None,
    timeout: float = 120.0,
) -> list[Outcome]:
    """How every rank ended, also when some failed. Processes still running after `timeout` seconds are killed."""
    options = JoinOptions() if options is None else options
    until = time.monotonic() + timeout
    pipes: list[Connection] = []
    processes: list[BaseProcess] = []
    reported: set[int] = set()
    try:
        for rank in range(world_size):
            ours, theirs = multiprocessing.Pipe()
            pipes.append(ours)
            process: BaseProcess = SpawnedProcess(
                target=_child, args=(theirs, rank, transport, options, function, tuple(arguments)), name=f"rank-{rank}"
            )
            process.start()
            processes.append(process)
            theirs.close()
        outcomes = [Outcome(rank) for rank in range(world_size)]
        _introduce(pipes, outcomes, until)
        reported = _collect(pipes, outcomes, until)
    finally:
        _end(processes, reported)
        for pipe in pipes:
            pipe.close()
    for outcome, process in zip(outcomes, processes, strict=True):
        outcome.exit_code = process.exitcode
        process.close()
    return outcomes


def _child(
    pipe: Connection,
    rank: int,
    transport: str,
    options: JoinOptions,
    function: RankFunction,
    arguments: tuple[Any, ...],
) -> None:
    try:
        listener = _listener(transport)
        pipe.send((str(listener.address), this_host()))
        record = Rendezvous.from_dict(pipe.recv())
        with join(record, rank, listener, options) as communicator:
            result = function(communicator, *arguments)
        pipe.send((result, None))
    except BaseException as error:  # noqa: BLE001 - reported to the parent
        _report(pipe, error)


def _report(pipe: Connection, error: BaseException) -> None:
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pipe.send((None, error))
    except Exception:  # noqa: BLE001 - whatever keeps the error from being pickled
        pipe.send((None, RankFailedError(f"{type(error).__name__}: {error}")))


def _introduce(pipes: list[Connection], outcomes: list[Outcome], until: float) -> None:
    """Collect the addresses of all ranks and hand the record to each; ranks that end before that are marked."""
    places = [_receive(pipe, outcome, until) for pipe, outcome in zip(pipes, outcomes, strict=True)]
    if any(outcome.error is not None for outcome in outcomes):
        for pipe in pipes:
            pipe.close()  # the children that wait for the record end
        return
    record = Rendezvous.create([place[0] for place in places], [place[1] for place in places]).as_dict()
    for pipe in pipes:
        pipe.send(record)


def _receive(pipe: Connection, outcome: Outcome, until: float) -> Any:
    try:
        if pipe.poll(max(0.0, until - time.monotonic())):
            return pipe.recv()
        outcome.error = RankFailedError(f"rank {outcome.rank} did not start in time")
    except (EOFError, OSError):
        outcome.error = RankFailedError(f"rank {outcome.rank} ended before it had started")
    return None


def _collect(pipes: list[Connection], outcomes: list[Outcome], until: float) -> set[int]:
    """Take what the ranks report; those that did."""
    reported: set[int] = set()
    waiting = {pipe: outcome for pipe, outcome in zip(pipes, outcomes, strict=True) if not pipe.closed}
    while waiting and (ready := wait(list(waiting), max(0.0, until - time.monotonic()))):
        for pipe in ready:
            assert isinstance(pipe, Connection)
            outcome = waiting.pop(pipe)
            try:
                outcome.result, outcome.error = pipe.recv()
                reported.add(outcome.rank)
            except (EOFError, OSError):
                outcome.error = RankFailedError(f"rank {outcome.rank} ended without a result")
    for outcome in waiting.values():
        outcome.error = RankFailedError(f"rank {outcome.rank} did not end in time and was killed")
    return reported


def _end(processes: list[BaseProcess], reported: set[int]) -> None:
    """Let processes end by themselves for a while; kill the rest (also stopped ones).

    On a busy machine it takes seconds until an interpreter that has nothing more to do is gone.
    """
    now = time.monotonic()
    for rank, process in enumerate(processes):
        until = now + (_SECONDS_TO_END if rank in reported else _SECONDS_TO_DIE)
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
