"""Who takes part in a store over real sockets: coming, leaving, failing, strangers, TLS; nothing stays behind."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from dmlgbm.collectives.errors import AuthenticationError, StaleGenerationError
from dmlgbm.collectives.frames import Header, Kind, session_number
from dmlgbm.collectives.joining.addresses import Address
from dmlgbm.collectives.joining.handshake import Hello, Purpose
from dmlgbm.collectives.joining.negotiation import Security, TlsContexts, connect
from dmlgbm.collectives.parameter_server import (
    Coordinator,
    ParameterServer,
    Store,
    StoreClosedError,
    StorePlan,
    StoreTimeout,
    WorkerExpiredError,
    asp,
    bsp,
)
from tests.reference.certificates import self_signed
from tests.reference.local_store import serving


def test_a_closed_store_refuses_calls_and_frees_who_waits() -> None:
    with serving(consistency=asp(), n_workers=1) as (membership, _):
        store = Store(membership)
        store.init("w", np.zeros(3))
        handle = store.pull_async("w", min_clock=5)
        store.close()
        store.close()
        with pytest.raises(StoreClosedError, match="pull of key 'w'"):
            handle.wait(1)
        with pytest.raises(StoreClosedError, match="push"):
            store.push("w", np.zeros(3))


def test_a_store_without_servers_coordinator_secret_or_place_says_so() -> None:
    with Coordinator(StorePlan(n_servers=2)) as coordinator:
        membership = coordinator.membership
        with pytest.raises(StoreTimeout, match="only 0 servers have come"):
            Store(membership, timeout=0.3)
        with pytest.raises(AuthenticationError):
            Store(replace(membership, security=Security(membership.security.session, b"x" * 32)), timeout=5)
        with pytest.raises(StaleGenerationError):
            Store(replace(membership, generation=3), timeout=5)
    with pytest.raises(StoreTimeout, match="no answer from the coordinator"):
        Store(membership, timeout=0.3)
    with serving() as (membership, _), Store(membership, 3) as store:
        assert store.ranks == (3,)
        with pytest.raises(StoreTimeout, match="rank 3 is a worker of this store already"):
            Store(membership, 3, timeout=0.5)


def test_a_store_whose_only_server_died_times_out_and_names_it() -> None:
    with serving(lease_seconds=0.5) as (membership, servers), Store(membership) as store:
        store.init("w", np.zeros(3))
        servers[0].close()
        for call in (lambda: store.push("w", np.zeros(3), timeout=0.5), lambda: store.pull("w", timeout=0.5)):
            with pytest.raises(StoreTimeout, match="of key 'w' at clock 0, server 0 at tcp://"):
                call()


def test_workers_join_and_leave() -> None:
    with serving(consistency=bsp(), n_workers=2) as (membership, _), ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            first, second = (stack.enter_context(s) for s in pool.map(lambda r: Store(membership, r), range(2)))
        first.init("n", np.zeros(1))
        for store in (first, second):
            store.push("n", np.ones(1))
            store.advance()
        assert first.pull("n") == 2
        second.push("n", np.ones(1))
        second.close()  # a push of a step that it did not finish does not count
        first.push("n", np.ones(1))
        assert first.advance() == 2
        assert first.pull("n") == 3
        with Store(membership) as third:
            assert (third.rank, third.clock) == (1, 2)
            handle = first.push_async("n", np.ones(1))
            assert handle.wait(10)
            first.advance()
            with pytest.raises(StoreTimeout, match=r"workers \[1\] have not reached clock 3"):
                first.pull("n", timeout=0.3)
            third.advance()
            assert first.pull("n") == 4


def test_a_leaving_server_hands_its_shards_over() -> None:
    with serving(n_servers=2, copies=1) as (membership, servers), Store(membership) as store:
        for number in range(8):
            store.init(f"key {number}", np.full(3, number))
        assert servers[0].leave(timeout=10)
        servers[0].close()
        for number in range(8):
            np.testing.assert_array_equal(store.push_pull(f"key {number}", np.ones(3, np.int64)), number + 1)


def test_a_server_that_ends_is_replaced_by_its_copy_and_a_new_one_is_filled() -> None:
    with serving(n_servers=2, copies=2, lease_seconds=0.5) as (membership, servers), Store(membership) as store:
        store.init("n", np.zeros(4, np.int64))
        for _ in range(5):
            store.push("n", np.ones(4, np.int64))
        servers[0].close()
        with ParameterServer(membership) as replacement:
            store.push("n", np.ones(4, np.int64))
            until = time.monotonic() + 20
            while any(len(place.chain) < 2 for place in store._calls.view.placements) and time.monotonic() < until:
                time.sleep(0.05)
            assert replacement.number == 2
            servers[1].close()
            np.testing.assert_array_equal(store.push_pull("n", np.ones(4, np.int64)), 7)


def test_strangers_and_nonsense_do_not_disturb_the_store() -> None:
    generator = np.random.default_rng(0)
    with serving() as (membership, servers), Store(membership) as store:
        store.init("w", np.zeros(3))
        address = Address.parse(store._calls.view.addresses[0][1])
        for _ in range(50):
            with socket.create_connection((address.host, address.port)) as stranger:
                stranger.sendall(generator.bytes(200))
        hello = Hello(membership.security.session, 0, 0, 0, 0, Purpose.PARAMETER_SERVER)
        for trial in range(300):
            with connect(address, hello, membership.security, 5.0) as member:
                member.settimeout(5.0)
                size = int(generator.integers(0, 300))
                announced = size if trial % 3 else 1 << 50
                header = Header(
                    Kind.REQUEST,
                    session_number(membership.security.session),
                    0,
                    0,
                    operation=trial % 20,
                    payload=announced,
                ).encode()
                member.sendall(header + generator.bytes(size))
        assert servers[0]._reactor.failure is None
        store.push("w", np.ones(3))
        np.testing.assert_array_equal(store.pull("w"), 1)
        assert servers[0].statistics()["refused_connections"] > 0


def test_a_worker_whose_process_was_frozen_for_too_long_is_told_and_the_others_go_on() -> None:
    plan = {"consistency": bsp(), "n_workers": 2, "worker_deadline_seconds": 0.6}
    with serving(**plan) as (membership, _), ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            first, second = (stack.enter_context(s) for s in pool.map(lambda r: Store(membership, r), range(2)))
        first.init("n", np.zeros(1))
        second.pull("n")
        frozen = threading.Event()
        holder = threading.Thread(target=lambda: second._calls._reactor.use(lambda core: frozen.wait(20)))
        holder.start()
        first.push("n", np.ones(1))
        first.advance()
        assert first.pull("n") == 1
        frozen.set()
        holder.join()
        with pytest.raises(WorkerExpiredError):
            list(iter(lambda: second.push("n", np.ones(1)), None))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsContexts:
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return TlsContexts(server, ssl.create_default_context(cafile=certificate), "localhost")


@pytest.mark.processes
def test_everything_works_over_tls(tls: TlsContexts) -> None:
    plan = StorePlan(n_servers=2, copies=2, consistency=asp())
    with (
        Coordinator(plan, tls=tls) as coordinator,
        ParameterServer(coordinator.membership),
        ParameterServer(coordinator.membership),
        Store(coordinator.membership) as store,
    ):
        values = np.random.default_rng(0).normal(size=300_000)
        store.init("w", values)
        handles = [store.push_async("w", values) for _ in range(10)]
        assert all(handle.wait(20) for handle in handles)
        expected = values.copy()
        for _ in range(10):
            expected += values
        np.testing.assert_array_equal(store.pull("w"), expected)
