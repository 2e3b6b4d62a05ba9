"""The store over real sockets in one process: what calls do, how they fail, and that nothing is left behind."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_parameter_server
from dmlgbm.collectives.compression import Float16, GatheredCodec, Int8, OneBit, PayloadError, TopK
from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.parameter_server import (
    SGD,
    Adagrad,
    Adam,
    KeyMismatchError,
    Momentum,
    Optimiser,
    PushCoder,
    RefusedError,
    SnapshotError,
    Store,
    StoreTimeout,
    Sum,
    UnknownKeyError,
    asp,
    bsp,
    ssp,
)
from dmlgbm.collectives.parameter_server.coded_values import decoded
from tests.reference.local_store import on_workers, serving


@pytest.mark.parametrize(
    "listen", [Listener.tcp, Listener.unix, lambda: Listener.tcp("::1")], ids=["tcp", "unix", "tcp6"]
)
def test_sums_of_dense_arrays_and_rows(listen: Callable[[], Listener]) -> None:
    with serving(listen, n_servers=2, copies=2) as (membership, _), Store(membership) as store:
        for parts in (1, 3):
            key = f"dense {parts}"
            store.init(key, np.arange(10.0).reshape(2, 5), parts=parts)
            assert store.push(key, np.ones((2, 5)))
            np.testing.assert_array_equal(store.pull(key), np.arange(10.0).reshape(2, 5) + 1)
            np.testing.assert_array_equal(store.push_pull(key, np.ones((2, 5))), np.arange(10.0).reshape(2, 5) + 2)
            key = f"rows {parts}"
            store.init_rows(key, 1 << 40, (2,), np.int64, fill=7, parts=parts)
            store.push_rows(key, [5, 1 << 39, 5], np.array([[1, 2], [3, 4], [10, 20]]))
            found = store.pull_rows(key, [1 << 39, 0, 5, 5])
            np.testing.assert_array_equal(found, [[10, 11], [7, 7], [18, 29], [18, 29]])
            assert store.pull_rows(key, []).shape == (0, 2)
        store.init("nothing", np.zeros((0, 3), np.float32))
        assert store.push_pull("nothing", np.zeros((0, 3), np.float32)).shape == (0, 3)
        store.init("scalar", np.float64(1.5))
        assert store.push_pull("scalar", np.float64(1.0)) == 2.5


@pytest.mark.parametrize("codec", [TopK(0.1), Int8(), OneBit(), Float16()], ids=lambda codec: codec.name)
@pytest.mark.parametrize("parts", [1, 3])
def test_coded_pushes_and_what_they_leave_out_make_the_whole(codec: GatheredCodec, parts: int) -> None:
    rng = np.random.default_rng(0)
    with serving(n_servers=2, copies=2) as (membership, _), Store(membership) as store:
        store.init("w", np.zeros(1001, np.float32), parts=parts)
        coder = PushCoder(codec, [0, 10, 700, 1000])  # the last number is not coded
        wanted, unsent = np.zeros(1001, np.float32), np.zeros(1001, np.float32)
        before = store.bytes_sent
        for _ in range(20):
            change = rng.normal(size=1001).astype(np.float32)
            change[-1] = 1 / 3
            wanted += change
            unsent += change
            handle, sent = store.push_coded_async("w", unsent, coder)
            unsent -= sent
            assert handle.wait(10)
            assert unsent[-1] == 0
        assert store.bytes_sent - before < 20 * 1001 * 4 * 0.75
        np.testing.assert_allclose(store.pull("w") + unsent, wanted, rtol=0, atol=2e-5)


def test_coded_values_that_no_worker_sends_are_refused() -> None:
    good, _ = PushCoder(TopK(0.5), [0, 4, 8]).coded(np.arange(9.0), 0)
    np.testing.assert_array_equal(decoded(good, np.dtype(np.float64), 9), [0, 0, 2, 3, 0, 0, 6, 7, 8])
    for change in (
        {"codec": "power_sgd"},
        {"settings": '{"fraction": 7}'},
        {"settings": "not json"},
        {"lengths": (4, 40)},
        {"lengths": (-4, 12)},
        {"lengths": (8,), "bodies": good.bodies[:-1]},
        {"bodies": np.full_like(good.bodies, -1)},
        {"rest": np.zeros(1, np.float32)},
    ):
        with pytest.raises(PayloadError):
            decoded(replace(good, **change), np.dtype(np.float64), 9)  # type: ignore[arg-type]


def test_pushes_take_what_the_array_held_when_the_call_was_made() -> None:
    with serving() as (membership, _), Store(membership) as store:
        store.init("w", np.zeros(100_000))
        values = np.ones(100_000)
        values.flags.writeable = False
        store.push("w", values)
        changing = np.ones(100_000)
        handles = []
        for _ in range(20):
            handles.append(store.push_async("w", changing))
            changing += 1
        assert all(handle.wait(10) for handle in handles)
        np.testing.assert_array_equal(store.pull("w"), 1 + sum(range(1, 21)))


def test_more_pushes_may_be_started_than_can_be_under_way() -> None:
    with serving() as (membership, _), Store(membership) as store:
        store.init("n", np.zeros(1, np.int64))
        handles = [store.push_async("n", np.ones(1, np.int64)) for _ in range(3000)]
        assert store.pull("n") == 3000
        assert all(handle.done() for handle in handles)


def reference_step(optimiser: Optimiser, value: float, gradients: list[float]) -> float:
    """The optimisers once more, for a single number, as papers write them."""
    velocity = squares = mean = 0.0
    for step, gradient in enumerate(gradients, start=1):
        if isinstance(optimiser, Sum):
            value += gradient
        elif isinstance(optimiser, SGD):
            value -= optimiser.learning_rate * gradient
        elif isinstance(optimiser, Momentum):
            velocity = optimiser.momentum * velocity + gradient
            value -= optimiser.learning_rate * velocity
        elif isinstance(optimiser, Adagrad):
            squares += gradient**2
            value -= optimiser.learning_rate * gradient / (squares**0.5 + optimiser.epsilon)
        elif isinstance(optimiser, Adam):
            mean = optimiser.beta_1 * mean + (1 - optimiser.beta_1) * gradient
            squares = optimiser.beta_2 * squares + (1 - optimiser.beta_2) * gradient**2
            corrected = squares / (1 - optimiser.beta_2**step)
            value -= (
                optimiser.learning_rate * mean / (1 - optimiser.beta_1**step) / (corrected**0.5 + optimiser.epsilon)
            )
    return value


@pytest.mark.parametrize(
    "optimiser", [Sum(), SGD(0.1), Momentum(0.1, 0.8), Adagrad(0.5), Adam(0.05)], ids=lambda each: each.NAME
)
def test_optimisers_step_as_in_their_papers(optimiser: Optimiser) -> None:
    gradients = [0.5, -1.25, 2.0, 0.125]
    with serving() as (membership, _), Store(membership) as store:
        store.init("w", np.full(3, 2.0), optimiser)
        store.init_rows("rows", 10, (3,), np.float64, optimiser, fill=2.0)
        for step, gradient in enumerate(gradients):
            store.push("w", np.full(3, gradient))
            store.push_rows("rows", [4, 8] if step % 2 else [4], np.full((2 if step % 2 else 1, 3), gradient))
        np.testing.assert_allclose(store.pull("w"), reference_step(optimiser, 2.0, gradients), rtol=1e-12)
        rows = store.pull_rows("rows", [4, 8])
        np.testing.assert_allclose(rows[0], reference_step(optimiser, 2.0, gradients), rtol=1e-12)
        np.testing.assert_allclose(rows[1], reference_step(optimiser, 2.0, gradients[1::2]), rtol=1e-12)


def test_bulk_synchronous_training_gives_the_same_bits_in_every_run_and_averages_gradients() -> None:
    def train(store: Store) -> bytes:
        store.init("w", np.zeros(50, np.float32), SGD(0.1))
        generator = np.random.default_rng(store.rank)
        for _ in range(8):
            store.pull("w")
            time.sleep(generator.uniform(0, 0.01))
            store.push("w", generator.normal(size=50).astype(np.float32))
            store.advance()
        return store.pull("w").tobytes()

    runs = []
    for _ in range(2):
        with serving(consistency=bsp(), n_workers=3, n_servers=2, copies=2) as (membership, _):
            runs += on_workers(membership, 3, train)
    assert len(set(runs)) == 1
    generators = [np.random.default_rng(rank) for rank in range(3)]
    expected = np.zeros(50)
    for _ in range(8):
        steps = [(generator.uniform(0, 0.01), generator.normal(size=50))[1] for generator in generators]
        expected -= 0.1 * np.mean(steps, axis=0)
    np.testing.assert_allclose(np.frombuffer(runs[0], np.float32), expected, atol=1e-5)


def test_the_staleness_bound_holds_while_a_worker_sleeps() -> None:
    staleness, n_steps = 2, 12
    clocks = [0, 0, 0]

    def work(store: Store) -> int:
        store.init("n", np.zeros((3, n_steps), np.int64))
        largest = 0
        for step in range(n_steps):
            if store.rank == 1 and step in (3, 7):
                time.sleep(0.4)
            seen = store.pull("n")
            largest = max(largest, step - min(clocks))
            assert seen[:, : max(0, step - staleness)].all()
            one = np.zeros((3, n_steps), np.int64)
            one[store.rank, step] = 1
            store.push_async("n", one)
            clocks[store.rank] = step + 1
            store.advance()
        return largest

    with serving(consistency=ssp(staleness), n_workers=3, n_servers=2, copies=2) as (membership, servers):
        gaps = on_workers(membership, 3, work)
        histogram = [entry for server in servers for entry in server.statistics()["pull_staleness"]]
    assert max(gaps) <= staleness
    assert max(stale for stale, _ in histogram) == staleness
    # A pull that waits for the sleeper may be asked, and then answered, a second time.
    assert 3 * n_steps <= sum(count for _, count in histogram) <= 2 * 3 * n_steps


def test_a_pull_waits_for_the_clock_it_names_and_says_who_is_missing() -> None:
    with serving(consistency=asp(), n_workers=2) as (membership, _), ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            first, second = (stack.enter_context(s) for s in pool.map(lambda r: Store(membership, r), range(2)))
        first.init("w", np.zeros(3))
        first.advance()
        handle = first.pull_async("w", min_clock=1)
        with pytest.raises(
            StoreTimeout, match=r"pull of key 'w' at clock 1, server 0 .*workers \[1\] have not reached"
        ) as caught:
            first.pull("w", min_clock=1, timeout=0.2)
        assert caught.value.missing_ranks == (1,)
        assert not handle.done()
        with pytest.raises(TimeoutError):
            handle.wait(0.05)
        second.advance()
        np.testing.assert_array_equal(handle.wait(10), np.zeros(3))
        assert sum(each["timeouts"] for each in first.statistics().values()) == 1
        assert sum(each["waiting_reads"] for each in first.statistics().values()) == 1


def test_bad_input_raises_on_the_caller_and_the_store_goes_on() -> None:
    with serving() as (membership, _), Store(membership) as store:
        store.init("w", np.zeros((2, 3), np.float32))
        store.init_rows("t", 10, (3,))
        cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
            (UnknownKeyError, "push of key 'v' at clock 0, server 0 at tcp", lambda: store.push("v", np.zeros(3))),
            (UnknownKeyError, "pull of key 'v'", lambda: store.pull("v")),
            (UnknownKeyError, "pull_rows of key 'v'", lambda: store.pull_rows("v", [1])),
            (
                KeyMismatchError,
                r"must have shape \(2, 3\), got \(6,\)",
                lambda: store.push("w", np.zeros(6, np.float32)),
            ),
            (KeyMismatchError, "holds float32, got float64", lambda: store.push("w", np.zeros((2, 3)))),
            (KeyMismatchError, "has no rows", lambda: store.push_rows("w", [0], np.zeros((1, 3), np.float32))),
            (KeyMismatchError, "use pull_rows", lambda: store.pull("t")),
            (KeyMismatchError, "use push_rows", lambda: store.push("t", np.zeros(3, np.float32))),
            (KeyMismatchError, "between 0 and 9, got -1 to 3", lambda: store.pull_rows("t", [3, -1])),
            (KeyMismatchError, "one axis of integers", lambda: store.pull_rows("t", [0.5])),
            (KeyMismatchError, r"shape \(2, 3\)", lambda: store.push_rows("t", [1, 2], np.zeros((1, 3), np.float32))),
            (KeyMismatchError, "exists already", lambda: store.init("w", np.zeros(7))),
            (TypeError, "dtype must be one of", lambda: store.init("c", np.zeros(3, np.complex128))),
            (TypeError, "float32 or float64", lambda: store.init("i", np.zeros(3, np.int64), SGD(0.1))),
            (ValueError, "parts", lambda: store.init("p", np.zeros(3), parts=0)),
            (ValueError, "fill must be", lambda: store.init_rows("p", 3, (3,), np.int64, fill=0.5)),
            (ValueError, "n_rows", lambda: store.init_rows("p", 0, (3,))),
        ]
        for error, text, call in cases:
            with pytest.raises(error, match=text):
                call()
        store.init("w", np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(store.push_pull("w", np.ones((2, 3), np.float32)), np.ones((2, 3)))


def test_servers_check_what_a_worker_with_wrong_ideas_sends() -> None:
    with serving() as (membership, _), Store(membership) as store:
        store.init("w", np.zeros(6, np.float32))
        good = store._specs["w"]
        for spec in (replace(good, shape=(7,)), replace(good, dtype="<f8")):
            store._specs["w"] = spec
            with pytest.raises(KeyMismatchError, match="push of key 'w' at clock 0, server 0"):
                store.push("w", np.zeros(spec.shape, spec.dtype))
        store._specs["w"] = good
        assert store.push("w", np.zeros(6, np.float32))


def test_backup_workers_are_not_waited_for() -> None:
    with serving(consistency=bsp(backup_workers=1), n_workers=3) as (membership, _), ExitStack() as stack:
        with ThreadPoolExecutor(3) as pool:
            stores = [stack.enter_context(s) for s in pool.map(lambda r: Store(membership, r), range(3))]
        stores[0].init("n", np.zeros(1))
        for store in stores[:2]:
            store.push("n", np.ones(1))
            store.advance()
        assert stores[0].pull("n") == 2
        assert not stores[2].push("n", np.ones(1)), "the step is over"
        assert stores[2].advance() == 1
        assert stores[2].pull("n") == 2


def test_snapshots_are_restored_with_the_state_of_optimisers_and_checked(tmp_path: Path) -> None:
    gradients = np.random.default_rng(0).normal(size=(6, 40))

    def train(store: Store, steps: range) -> None:
        for step in steps:
            store.push("w", gradients[step])
            store.push_rows("t", [step, 99 - step], gradients[step, :4].reshape(2, 2))
            store.advance()

    def content(store: Store) -> bytes:
        return store.pull("w").tobytes() + store.pull_rows("t", np.arange(100)).tobytes()

    with serving(consistency=bsp()) as (membership, _), Store(membership) as store:
        store.init("w", np.zeros(40), Adam(), parts=3)
        store.init_rows("t", 100, (2,), np.float64, Momentum(0.1), parts=2)
        train(store, range(2))
        store.snapshot(tmp_path)
        train(store, range(2, 3))
        store.snapshot(tmp_path)
        train(store, range(3, 6))
        expected = content(store)
    with serving(consistency=bsp(), n_servers=2, copies=2) as (membership, _), Store(membership) as store:
        store.restore(tmp_path)
        assert store.clock == 3
        with Store(membership) as other:
            assert other.clock == 3
            with pytest.raises(RefusedError, match="only a single worker can restore"):
                store.restore(tmp_path)
        train(store, range(3, 6))
        assert content(store) == expected
    with (
        serving(n_shards=4) as (membership, _),
        Store(membership) as store,
        pytest.raises(SnapshotError, match="has 5 shards, the store 4"),
    ):
        store.restore(tmp_path)
    damaged = max(tmp_path.glob("shard-*.bin"), key=lambda path: path.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with serving() as (membership, _), Store(membership) as store:
        with pytest.raises(SnapshotError, match="damaged"):
            store.restore(tmp_path)
        with pytest.raises(SnapshotError, match="no readable snapshot"):
            store.restore(tmp_path / "elsewhere")


def test_benchmark_reports_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_parameter_server, "SIZES", (64, 4096))
    file = tmp_path / "figures.jsonl"
    arguments = ["--calls", "3", "--servers", "thread", "--copies", "1", "2", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["bench_parameter_server", *arguments])
    bench_parameter_server.main()
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    figures = [record for record in records if record["kind"] == bench_parameter_server.PARAMETER_SERVER]
    assert {record["operation"] for record in figures} == {"bare echo", "push", "pull", "push, then pull", "push_pull"}
    assert all(record["median_seconds"] > 0 for record in figures)
    assert len(capsys.readouterr().out.splitlines()) == len(figures) + 1
