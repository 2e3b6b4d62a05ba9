"""Pulls of changes: a worker's copy is what a whole pull brings, whatever was pushed, restored or lost in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server import (
    SGD,
    Adagrad,
    Adam,
    Mirror,
    Momentum,
    Optimiser,
    ParameterServer,
    Store,
    Sum,
    UnknownKeyError,
    asp,
)
from dmlgbm.collectives.parameter_server.messages import Changes, KeySpec
from tests.reference.local_store import on_workers, serving

N_ROWS = 50


def some_of(rng: np.random.Generator, size: int, n_chosen: int) -> np.ndarray:
    """Numbers in a few positions, zeros elsewhere."""
    change = np.zeros(size)
    change[rng.choice(size, n_chosen, replace=False)] = rng.normal(size=n_chosen)
    return change


@pytest.mark.parametrize(
    "optimiser", [Sum(), SGD(0.1), Momentum(0.1), Adagrad(0.1), Adam()], ids=lambda each: each.NAME
)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_mirror_holds_what_a_whole_pull_brings(optimiser: Optimiser, parts: int) -> None:
    rng = np.random.default_rng(0)
    with serving(n_servers=2, copies=2) as (membership, _), Store(membership) as store:
        store.init("dense", rng.normal(size=(20, 10)), optimiser, parts=parts)
        store.init_rows("rows", N_ROWS, (3,), np.float64, optimiser, fill=2.0, parts=parts)
        dense, rows = Mirror("dense"), Mirror("rows")
        for _ in range(8):
            store.push("dense", some_of(rng, 200, 5).reshape(20, 10))
            chosen = rng.integers(0, N_ROWS, 4)
            store.push_rows("rows", chosen, rng.normal(size=(4, 3)))
            store.advance()
            np.testing.assert_array_equal(store.pull_changes(dense), store.pull("dense"))
            np.testing.assert_array_equal(store.pull_changes(rows), store.pull_rows("rows", np.arange(N_ROWS)))
        mine = store.pull_changes(dense)
        mine[...] = 0.0  # is an array of the caller's own
        np.testing.assert_array_equal(store.pull_changes(dense), store.pull("dense"))


def settled_bytes(server: ParameterServer) -> int:
    """What a server has sent, once it has counted everything that its worker may have received already."""
    counted = -1
    while counted != server.bytes_sent:
        counted = server.bytes_sent
        time.sleep(0.05)
    return counted


def test_only_what_changed_travels() -> None:
    rng = np.random.default_rng(0)
    with serving() as (membership, servers), Store(membership) as store:
        store.init("w", np.zeros(100_000))
        store.init_rows("t", 1000, (64,), np.float64)
        store.push_rows("t", np.arange(1000), rng.normal(size=(1000, 64)))
        store.advance()
        mirrors = Mirror("w"), Mirror("t")

        def bytes_of_a_pull(mirror: Mirror, push: Callable[[], None] = lambda: None) -> int:
            """The least of three turns: on a busy machine a pull may be asked for twice."""
            counted = []
            for _ in range(3):
                push()
                store.advance()
                before = settled_bytes(servers[0])
                store.pull_changes(mirror)
                counted.append(settled_bytes(servers[0]) - before)
            return min(counted)

        before = settled_bytes(servers[0])
        for mirror in mirrors:
            store.pull_changes(mirror)
        assert settled_bytes(servers[0]) - before > 1_312_000
        assert all(bytes_of_a_pull(mirror) < 1000 for mirror in mirrors)
        few = bytes_of_a_pull(mirrors[0], lambda: store.push("w", some_of(rng, 100_000, 100)))
        assert 1200 < few < 2500
        few = bytes_of_a_pull(mirrors[1], lambda: store.push_rows("t", [7, 300], np.ones((2, 64))))
        assert 1024 < few < 2500
        # Everything changed: numbers without their positions.
        assert 800_000 < bytes_of_a_pull(mirrors[0], lambda: store.push("w", np.ones(100_000))) < 801_000


def test_workers_see_the_changes_of_each_other() -> None:
    def work(store: Store) -> np.ndarray:
        store.init("w", np.zeros(300))
        mirror, rng = Mirror("w"), np.random.default_rng(store.rank)
        handles = []
        for _ in range(30):
            store.push("w", some_of(rng, 300, 3))
            store.advance()
            handles.append(store.pull_changes_async(mirror))  # several may be under way
        for handle in handles:
            handle.wait(10)
        return store.pull_changes(mirror, min_clock=30)

    with serving(n_workers=3, consistency=asp()) as (membership, _):
        found = on_workers(membership, 3, work)
    rngs = [np.random.default_rng(rank) for rank in range(3)]
    wanted = sum(some_of(rng, 300, 3) for rng in rngs for _ in range(30))
    for values in found:
        np.testing.assert_allclose(values, wanted, atol=1e-12)


def test_a_mirror_survives_the_loss_of_a_server_and_a_restored_snapshot(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with serving(n_servers=3, copies=2, lease_seconds=0.5) as (membership, servers), Store(membership) as store:
        store.init("w", np.zeros(500))
        store.init_rows("t", N_ROWS, (2,), np.float64, fill=1.0)
        dense, rows = Mirror("w"), Mirror("t")

        def check() -> None:
            np.testing.assert_array_equal(store.pull_changes(dense), store.pull("w"))
            np.testing.assert_array_equal(store.pull_changes(rows), store.pull_rows("t", np.arange(N_ROWS)))

        def push(row: int) -> None:
            store.push("w", some_of(rng, 500, 5))
            store.push_rows("t", [row], np.ones((1, 2)))
            store.advance()

        push(3)
        check()
        store.snapshot(tmp_path)
        push(4)
        check()
        head: ParameterServer = next(each for each in servers if each.number == store_head(store))
        head.close()
        push(5)
        check()
        store.restore(tmp_path)
        check()
        push(6)
        check()


def store_head(store: Store) -> int:
    return store._calls.view.placements[0].head


def test_bad_calls_and_answers_no_server_gives_are_refused() -> None:
    with serving() as (membership, _), Store(membership) as store, pytest.raises(UnknownKeyError, match="init first"):
        store.pull_changes(Mirror("nothing"))
    spec = KeySpec((4,), 0, "<f8", 1, 0.0, "sum", ())
    good = Changes(1, True, None, np.zeros(4))
    Mirror("w").update(spec, [good])
    for change in (
        {"values": np.zeros(3)},
        {"positions": np.array([4]), "values": np.zeros(1)},
        {"positions": np.array([-1]), "values": np.zeros(1)},
        {"positions": np.array([1, 2]), "values": np.zeros(1)},
    ):
        with pytest.raises(ProtocolError, match="part 0 of key 'w'"):
            Mirror("w").update(spec, [replace(good, **change)])  # type: ignore[arg-type]


def test_an_answer_that_was_overtaken_changes_nothing() -> None:
    spec, mirror = KeySpec((2,), 0, "<f8", 1, 0.0, "sum", ()), Mirror("w")
    mirror.update(spec, [Changes(5, True, None, np.array([5.0, 6.0]))])
    mirror.update(spec, [Changes(9, False, np.array([0]), np.array([9.0]))])
    np.testing.assert_array_equal(mirror.update(spec, [Changes(7, False, np.array([0]), np.array([7.0]))]), [9.0, 6.0])
    assert mirror.as_of(0) == 9
