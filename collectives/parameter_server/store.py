"""What a worker sees of the parameter server: keys that it initialises, pushes to and pulls from, and its clock.

Every call has a blocking form and one that returns a handle. Calls of one worker take effect in the order in which
they were started, so a pull sees the pushes before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.handles import Handle
from dmlgbm.collectives.parameter_server.calls import Calls, Request, Subject
from dmlgbm.collectives.parameter_server.codec import DTYPES, Array
from dmlgbm.collectives.parameter_server.coded_values import PushCoder
from dmlgbm.collectives.parameter_server.errors import KeyMismatchError
from dmlgbm.collectives.parameter_server.membership import Membership
from dmlgbm.collectives.parameter_server.messages import (
    Advance,
    Count,
    Describe,
    Export,
    Init,
    Join,
    KeySpec,
    Pull,
    PullChanges,
    Push,
    Restore,
    ShardCopy,
    Status,
)
from dmlgbm.collectives.parameter_server.mirror import Mirror
from dmlgbm.collectives.parameter_server.optimisers import Optimiser, Sum, settings_of
from dmlgbm.collectives.parameter_server.snapshots import read_snapshot, write_snapshot
from dmlgbm.collectives.parameter_server.table import check_spec, part_bounds
from dmlgbm.collectives.parameter_server.view import rank_of, shard_of
from dmlgbm.collectives.parameter_server.worker_core import Result


class Store:
    """One worker of a store. Made by connecting; a context manager.

    `rank` fixes the order in which the pushes of workers are added up; without it the next free rank is taken.
    `timeout` is the deadline of every call that is given none of its own.
    """

    def __init__(self, membership: Membership, rank: int | None = None, timeout: float = 30.0) -> None:
        if rank is not None and not 0 <= rank < 1 << 30:
            raise ValueError(f"rank must be between 0 and 2**30 - 1, got {rank}")
        self._timeout = timeout
        self._largest = membership.maximum_message_bytes
        self._clock = 0
        self._seen = 0
        self._specs: dict[str, KeySpec] = {}
        self._calls = Calls(membership, -1 if rank is None else rank, timeout)
        try:
            self._join(timeout)
        except BaseException:
            self.close()
            raise

    def _join(self, timeout: float) -> None:
        """Make every shard know this worker, at the same clock everywhere."""
        start = self._start("join", "", [(shard, Join()) for shard in self._shards], _largest_clock, timeout).wait()
        if start:
            self._advance_to(start, timeout).wait()
        self._calls.wait_for_start(timeout)

    @property
    def rank(self) -> int:
        return rank_of(self._calls.worker)

    @property
    def clock(self) -> int:
        """How many steps this worker has finished."""
        return self._clock

    @property
    def reached(self) -> int:
        """The clock that everybody who is waited for had reached when this worker last heard of it."""
        return self._seen

    @property
    def bytes_sent(self) -> int:
        """What this worker has sent so far."""
        return self._calls.bytes_sent

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the workers that take part, as far as this one has heard."""
        return tuple(rank_of(worker) for worker in self._calls.view.workers)

    @property
    def _shards(self) -> range:
        return range(len(self._calls.view.placements))

    def _shard(self, key: str, part: int) -> int:
        return shard_of(key, part, len(self._shards))

    def _start(
        self, operation: str, key: str, requests: Sequence[Request], finish: Any, timeout: float | None
    ) -> Handle[Any]:
        patience = self._timeout if timeout is None else timeout
        return self._calls.start(Subject(operation, key, self._clock), requests, finish, patience)

    # Keys

    def init(self, key: str, value: npt.ArrayLike, optimiser: Optimiser | None = None, *, parts: int = 1) -> None:
        """Make a dense array, unless it is there. Of several workers the first one's values count.

        `parts` cuts a large array into pieces that live on different shards.
        """
        array = np.asarray(value)
        spec = self._spec(array.shape, 0, array.dtype, optimiser, 0.0, parts)
        flat = np.array(array, spec.dtype, order="C").reshape(-1)
        self._init(key, spec, [flat[slice(*part_bounds(spec, part))] for part in range(parts)])

    def init_rows(
        self,
        key: str,
        n_rows: int,
        shape: Sequence[int],
        dtype: npt.DTypeLike = np.float32,
        optimiser: Optimiser | None = None,
        *,
        fill: float = 0.0,
        parts: int = 1,
    ) -> None:
        """Make a table of `n_rows` rows of a shape, unless it is there. Rows take room once they are pushed to."""
        if n_rows < 1:
            raise ValueError(f"n_rows must be at least 1, got {n_rows}")
        spec = self._spec(tuple(shape), n_rows, np.dtype(dtype), optimiser, fill, parts)
        self._init(key, spec, [np.zeros(0, spec.dtype)] * parts)

    def _spec(
        self,
        shape: tuple[int, ...],
        n_rows: int,
        dtype: np.dtype[Any],
        optimiser: Optimiser | None,
        fill: float,
        parts: int,
    ) -> KeySpec:
        optimiser = Sum() if optimiser is None else optimiser
        if dtype not in DTYPES:
            raise TypeError(f"dtype must be one of {', '.join(map(str, DTYPES))}, got {dtype}")
        if optimiser.ONLY_REAL and dtype.kind != "f":
            raise TypeError(f"dtype must be float32 or float64 with optimiser {optimiser}, got {dtype}")
        code = dtype.newbyteorder("<").str
        spec = KeySpec(shape, n_rows, code, parts, float(fill), optimiser.NAME, settings_of(optimiser))
        try:
            check_spec(spec)
        except ProtocolError as error:
            raise ValueError(str(error)) from error
        return spec

    def _init(self, key: str, spec: KeySpec, values: list[Array]) -> None:
        for value in values:
            self._check_size(key, value)
        requests = [(self._shard(key, part), Init(key, part, spec, value)) for part, value in enumerate(values)]
        self._start("init", key, requests, _nothing, None).wait()
        self._specs[key] = spec

    def _spec_of(self, key: str, operation: str, timeout: float | None) -> KeySpec:
        if key not in self._specs:
            request = (self._shard(key, 0), Describe(key))
            self._specs[key] = self._start(operation, key, [request], lambda found: found[0].answer, timeout).wait()
        return self._specs[key]

    def _check_size(self, key: str, array: Array) -> None:
        if array.nbytes > self._largest // 2:
            raise KeyMismatchError(
                f"an array of {array.nbytes} bytes for key {key!r} does not fit a message "
                f"(maximum_message_bytes={self._largest}): use more parts"
            )

    # Dense arrays

    def push(self, key: str, value: npt.ArrayLike, *, timeout: float | None = None) -> bool:
        """Hand in values of the key's shape for this worker's step; False if they were dropped because it is over."""
        return self.push_async(key, value, timeout=timeout).wait()

    def push_async(self, key: str, value: npt.ArrayLike, *, timeout: float | None = None) -> Handle[bool]:
        """Like `push`; the array may be changed as soon as this returns."""
        return self._start("push", key, self._push_requests("push", key, value, timeout), self._applied, timeout)

    def push_coded_async(
        self, key: str, value: npt.ArrayLike, coder: PushCoder, *, timeout: float | None = None
    ) -> tuple[Handle[bool], Array]:
        """Like `push_async`, through a codec; also what the servers make of it. The rest is the caller's to send."""
        plain = self._push_requests("push", key, value, timeout)
        requests: list[Request] = []
        applied: list[Array] = []
        for shard, push in plain:
            assert isinstance(push, Push)
            assert isinstance(push.values, np.ndarray)
            coded, sent = coder.coded(push.values, sum(map(len, applied)))
            requests.append((shard, replace(push, values=coded)))
            applied.append(sent)
        handle = self._start("push", key, requests, self._applied, timeout)
        return handle, np.concatenate(applied).reshape(np.shape(value))

    def _push_requests(self, operation: str, key: str, value: npt.ArrayLike, timeout: float | None) -> list[Request]:
        spec, array = self._spec_of(key, operation, timeout), np.asarray(value)
        self._check_fits(operation, key, spec, array, spec.shape, rows=False)
        flat = np.array(array, spec.dtype, order="C").reshape(-1)
        requests: list[Request] = []
        for part in range(spec.parts):
            start, stop = part_bounds(spec, part)
            requests.append((self._shard(key, part), Push(key, part, self._clock, None, flat[start:stop])))
        return requests

    def _check_fits(
        self, operation: str, key: str, spec: KeySpec, array: Array, shape: tuple[int, ...], *, rows: bool
    ) -> None:
        where = f"{operation} of key {key!r} at clock {self._clock}"
        if rows != (spec.n_rows > 0):
            kind = "a table of rows: use push_rows and pull_rows" if spec.n_rows else "a dense array and has no rows"
            raise KeyMismatchError(f"{where}: the key is {kind}")
        if array.dtype != np.dtype(spec.dtype):
            raise KeyMismatchError(f"{where}: the key holds {np.dtype(spec.dtype)}, got {array.dtype}")
        if array.shape != shape:
            raise KeyMismatchError(f"{where}: the array must have shape {shape}, got {array.shape}")
        self._check_size(key, array)

    def pull(self, key: str, *, min_clock: int | None = None, timeout: float | None = None) -> Array:
        """The values of a dense array, once all workers the mode waits for have reached `min_clock`.

        By default that is what the store's consistency asks of this worker's clock.
        """
        return self.pull_async(key, min_clock=min_clock, timeout=timeout).wait()

    def pull_async(self, key: str, *, min_clock: int | None = None, timeout: float | None = None) -> Handle[Array]:
        spec, requests = self._pull_requests("pull", key, min_clock, timeout)
        return self._start("pull", key, requests, lambda found: self._whole(spec, found), timeout)

    def _pull_requests(
        self, operation: str, key: str, min_clock: int | None, timeout: float | None
    ) -> tuple[KeySpec, list[Request]]:
        spec = self._spec_of(key, operation, timeout)
        if spec.n_rows:
            raise KeyMismatchError(f"{operation} of key {key!r}: the key is a table of rows: use pull_rows")
        clock = self._min_clock(min_clock)
        requests = [(self._shard(key, part), Pull(key, part, self._clock, clock, None)) for part in range(spec.parts)]
        return spec, requests  # type: ignore[return-value]

    def _min_clock(self, min_clock: int | None) -> int:
        return self._clock - self._calls.view.consistency.staleness if min_clock is None else min_clock

    def _whole(self, spec: KeySpec, found: Sequence[Result]) -> Array:
        self._note_clocks(found)
        parts = [result.answer for result in found]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)  # type: ignore[arg-type]
        return whole.reshape(spec.shape)  # type: ignore[union-attr]

    def push_pull(
        self, key: str, value: npt.ArrayLike, *, min_clock: int | None = None, timeout: float | None = None
    ) -> Array:
        """A push and a pull that follows it, in one round trip."""
        return self.push_pull_async(key, value, min_clock=min_clock, timeout=timeout).wait()

    def push_pull_async(
        self, key: str, value: npt.ArrayLike, *, min_clock: int | None = None, timeout: float | None = None
    ) -> Handle[Array]:
        pushes = self._push_requests("push_pull", key, value, timeout)
        spec, pulls = self._pull_requests("push_pull", key, min_clock, timeout)
        return self._start(
            "push_pull", key, pushes + pulls, lambda found: self._whole(spec, found[len(pushes) :]), timeout
        )

    # Rows

    def push_rows(self, key: str, rows: npt.ArrayLike, values: npt.ArrayLike, *, timeout: float | None = None) -> bool:
        """Hand in values for some rows of a table; values of rows named twice are added up."""
        return self.push_rows_async(key, rows, values, timeout=timeout).wait()

    def push_rows_async(
        self, key: str, rows: npt.ArrayLike, values: npt.ArrayLike, *, timeout: float | None = None
    ) -> Handle[bool]:
        spec = self._spec_of(key, "push_rows", timeout)
        numbers = self._row_numbers("push_rows", key, spec, rows)
        array = np.asarray(values)
        self._check_fits("push_rows", key, spec, array, (len(numbers), *spec.shape), rows=True)
        block = np.array(array, order="C").reshape(len(numbers), prod(spec.shape))
        requests: list[Request] = []
        for part in range(spec.parts):
            chosen = numbers % spec.parts == part
            requests.append(
                (self._shard(key, part), Push(key, part, self._clock, numbers[chosen], block[chosen].reshape(-1)))
            )
        return self._start("push_rows", key, requests, self._applied, timeout)

    def pull_rows(
        self, key: str, rows: npt.ArrayLike, *, min_clock: int | None = None, timeout: float | None = None
    ) -> Array:
        """The values of some rows of a table, in the order asked for; rows never pushed to hold the fill value."""
        return self.pull_rows_async(key, rows, min_clock=min_clock, timeout=timeout).wait()

    def pull_rows_async(
        self, key: str, rows: npt.ArrayLike, *, min_clock: int | None = None, timeout: float | None = None
    ) -> Handle[Array]:
        spec = self._spec_of(key, "pull_rows", timeout)
        numbers = self._row_numbers("pull_rows", key, spec, rows)
        clock = self._min_clock(min_clock)
        requests: list[Request] = []
        for part in range(spec.parts):
            pull = Pull(key, part, self._clock, clock, numbers[numbers % spec.parts == part])
            requests.append((self._shard(key, part), pull))

        def finish(found: Sequence[Result]) -> Array:
            self._note_clocks(found)
            whole = np.empty((len(numbers), prod(spec.shape)), spec.dtype)
            for part, result in enumerate(found):
                whole[numbers % spec.parts == part] = result.answer
            return whole.reshape(len(numbers), *spec.shape)

        return self._start("pull_rows", key, requests, finish, timeout)

    # Changes

    def pull_changes(self, mirror: Mirror, *, min_clock: int | None = None, timeout: float | None = None) -> Array:
        """Like `pull`, of a dense array or of all rows of a table, but only what changed since the last time travels.

        That time, and the values of then, are in `mirror`.
        """
        return self.pull_changes_async(mirror, min_clock=min_clock, timeout=timeout).wait()

    def pull_changes_async(
        self, mirror: Mirror, *, min_clock: int | None = None, timeout: float | None = None
    ) -> Handle[Array]:
        key, clock = mirror.key, self._min_clock(min_clock)
        spec = self._spec_of(key, "pull_changes", timeout)
        requests: list[Request] = [
            (self._shard(key, part), PullChanges(key, part, self._clock, clock, mirror.as_of(part)))
            for part in range(spec.parts)
        ]

        def finish(found: Sequence[Result]) -> Array:
            self._note_clocks(found)
            return mirror.update(spec, _answers(found))

        return self._start("pull_changes", key, requests, finish, timeout)

    def _row_numbers(self, operation: str, key: str, spec: KeySpec, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        where = f"{operation} of key {key!r} at clock {self._clock}"
        if not spec.n_rows:
            raise KeyMismatchError(f"{where}: the key is a dense array and has no rows")
        numbers = np.asarray(rows)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise KeyMismatchError(f"{where}: rows must be one axis of integers, got {numbers.dtype} {numbers.shape}")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < spec.n_rows:
            found = f"{numbers.min()} to {numbers.max()}"
            raise KeyMismatchError(f"{where}: rows must be between 0 and {spec.n_rows - 1}, got {found}")
        return np.array(numbers, np.int64)

    # Clocks

    def advance(self, *, to: int = 0, timeout: float | None = None) -> int:
        """Finish this worker's step, or all steps below `to`; its new clock.

        With backup workers, one that fell behind skips what is over.
        """
        return self.advance_async(to=to, timeout=timeout).wait()

    def advance_async(self, *, to: int = 0, timeout: float | None = None) -> Handle[int]:
        """Like `advance`; what this worker starts next belongs to its new step already."""
        return self._advance_to(max(self._clock + 1, self._seen, to), timeout)

    def _advance_to(self, clock: int, timeout: float | None) -> Handle[int]:
        requests = [(shard, Advance(clock)) for shard in self._shards]
        before, self._clock = self._clock, clock

        def finish(found: Sequence[Result]) -> int:
            self._note_clocks(found)
            return clock

        try:
            return self._start("advance", "", requests, finish, timeout)
        except BaseException:
            self._clock = before
            raise

    def _note_clocks(self, found: Sequence[Result]) -> None:
        self._seen = max(self._seen, _largest_clock(found))

    def _applied(self, found: Sequence[Result]) -> bool:
        self._note_clocks(found)
        return all(result.outcome.status == Status.DONE for result in found)

    # The store as a whole

    def snapshot(self, folder: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        """Write every shard to files in a folder; a snapshot that is there already stays whole until the new one is.

        Shards are copied one after another: to have them all of one clock, let no worker push meanwhile.
        """
        requests = [(shard, Export()) for shard in self._shards]
        handle = self._start("snapshot", "", requests, lambda found: [result.answer for result in found], timeout)
        write_snapshot(folder, handle.wait(), self._clock)

    def restore(self, folder: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        """Replace everything by a snapshot, while this is the only worker; its clock moves on to the snapshot's."""
        copies = read_snapshot(folder, len(self._shards))
        clock = max([self._clock, *(copy.frontier for copy in copies)])
        requests = [(shard, Restore(_at_clock(copy, clock))) for shard, copy in enumerate(copies)]
        self._start("restore", "", requests, _nothing, timeout).wait()
        self._specs.clear()
        self._clock = self._seen = clock

    def statistics(self, *, timeout: float | None = None) -> dict[int, dict[str, Any]]:
        """What every server that is in charge of a shard has counted, by server number."""
        heads = {placement.head: shard for shard, placement in enumerate(self._calls.view.placements)}
        handle = self._start("statistics", "", [(shard, Count()) for shard in heads.values()], _answers, timeout)
        return {server: json.loads(text) for server, text in zip(heads, handle.wait(), strict=True)}

    def close(self) -> None:
        """Leave the store. Calls under way end with StoreClosedError; closing twice does nothing."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _nothing(found: Sequence[Result]) -> None:
    return None


def _answers(found: Sequence[Result]) -> list[Any]:
    return [result.answer for result in found]


def _largest_clock(found: Sequence[Result]) -> int:
    return max(result.outcome.clock for result in found)


def _at_clock(copy: ShardCopy, clock: int) -> ShardCopy:
    """What a snapshot holds of a shard, without the workers of that time."""
    return ShardCopy(0, clock, copy.tables, (), (), ())
