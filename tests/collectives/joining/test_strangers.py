"""Whoever is not a rank of the session is refused, whatever it sends, and the session goes on."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives import (
    AuthenticationError,
    CollectiveError,
    CollectiveTimeout,
    Communicator,
    JoinOptions,
    Listener,
    MismatchError,
    ProtocolError,
    Rendezvous,
    StaleGenerationError,
    TlsContexts,
    join,
)
from dmlgbm.collectives.frames import Header, Kind, Operation, decode, session_number
from dmlgbm.collectives.joining.handshake import Hello
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.collectives.joining.mesh import connect_mesh


def record_for(*listeners: Listener, generation: int = 0) -> Rendezvous:
    return Rendezvous.create([str(listener.address) for listener in listeners], generation=generation)


def join_in_thread(record: Rendezvous, rank: int, listener: Listener, options: JoinOptions) -> Callable[[], Any]:
    """Start joining and reducing; the returned call waits for the sum or raises the error."""
    results: list[Any] = []

    def work() -> None:
        try:
            with join(record, rank, listener, options) as communicator:
                results.append(communicator.all_reduce(np.ones(5)).sum())
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def finish() -> Any:
        thread.join(30)
        assert not thread.is_alive()
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    return finish


def say(address: str, data: bytes) -> bytes:
    """Connect like a stranger, say something, hear what comes back."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        heard = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(4096):
                heard += more
        except OSError:
            pass
        return heard


def test_scanners_and_half_open_connections_do_not_hold_up_a_session() -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(join_timeout=20))
    half_open = [socket.create_connection(listeners[0].socket.getsockname()) for _ in range(300)]
    for data in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 10_000, b"DMLH" + bytes(range(52))):
        say(record.addresses[0], data)
    second = join_in_thread(record, 1, listeners[1], JoinOptions(join_timeout=20))
    assert first() == second() == 10
    for connection in half_open:
        connection.close()


def test_a_wrong_secret_is_refused_and_the_right_one_still_gets_in() -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    wrong = Rendezvous(record.session, record.addresses, b"x" * 32)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(join_timeout=20))
    with pytest.raises(AuthenticationError, match="secret"):
        join(wrong, 1, Listener.tcp(), JoinOptions(join_timeout=5))
    assert join_in_thread(record, 1, listeners[1], JoinOptions(join_timeout=20))() == first() == 10


def test_a_listener_without_the_secret_cannot_pass_for_a_rank() -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    wrong = Rendezvous(record.session, record.addresses, b"x" * 32)
    impostor = join_in_thread(wrong, 0, listeners[0], JoinOptions(join_timeout=2))
    with pytest.raises(AuthenticationError, match="rank 0 does not know the secret"):
        join(record, 1, listeners[1], JoinOptions(join_timeout=5))
    with pytest.raises(CollectiveTimeout, match=r"ranks \[1\]") as caught:
        impostor()
    assert caught.value.missing_ranks == (1,)


def test_a_stale_generation_is_refused_naming_both_sides() -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners, generation=7)
    stale = Rendezvous(record.session, record.addresses, record.secret, generation=6)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(join_timeout=20))
    with pytest.raises(StaleGenerationError, match=r"rank 1 .* generation 6, but rank 0 is in generation 7"):
        join(stale, 1, Listener.tcp(), JoinOptions(join_timeout=5))
    assert join_in_thread(record, 1, listeners[1], JoinOptions(join_timeout=20))() == first() == 10


def test_another_world_size_is_refused() -> None:
    listeners = [Listener.tcp(), Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    smaller = Rendezvous(record.session, record.addresses[:2], record.secret)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(join_timeout=3))
    with pytest.raises(MismatchError, match="world of 2 ranks"):
        join(smaller, 1, listeners[1], JoinOptions(join_timeout=5))
    with pytest.raises(CollectiveTimeout):
        first()
    listeners[2].close()


def test_a_missing_rank_is_named_when_the_deadline_passes() -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    listeners[0].close()
    with pytest.raises(CollectiveTimeout, match=r"ranks \[0\]") as caught:
        join(record, 1, listeners[1], JoinOptions(join_timeout=0.5))
    assert caught.value.missing_ranks == (0,)


def rogue_session() -> tuple[Communicator, socket.socket, Rendezvous]:
    """Rank 0 as a communicator, and the bare authenticated connection of a rank 1 that says what it likes."""
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    made: list[Communicator] = []
    options = JoinOptions(timeout=5)
    thread = threading.Thread(target=lambda: made.append(join(record, 0, listeners[0], options)))
    thread.start()
    with listeners[1]:
        connection = connect_mesh(record, 1, listeners[1], 10)[0]
    thread.join()
    connection.setblocking(True)
    return made[0], connection, record


def mutated(generator: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut off, doubled or replaced."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 8)):
        choice = generator.randrange(4)
        position = generator.randrange(len(changed) + 1)
        if choice == 0 and position < len(changed):
            changed[position] = generator.randrange(256)
        elif choice == 1:
            del changed[position : position + generator.randint(1, 16)]
        elif choice == 2:
            changed[position:position] = generator.randbytes(generator.randint(1, 16))
        else:
            changed += changed[:position]
    return bytes(changed)


def test_mutated_frames_of_a_rank_end_its_session_with_an_error_and_nothing_worse() -> None:
    generator = random.Random(0)
    for _ in range(150):
        communicator, connection, record = rogue_session()
        header = Header(
            Kind.DATA,
            session_number(record.session),
            0,
            1,
            operation=Operation.ALL_REDUCE,
            reducer=1,
            dtype=b"<f8",
            count=100,
            payload=800,
        )
        frame = mutated(generator, header.encode() + b"\1" * 800)
        with communicator, connection:
            connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
            began = time.monotonic()
            with contextlib.suppress(CollectiveError):
                communicator.all_reduce(np.ones(100))
            assert time.monotonic() - began < 3


def test_headers_are_decoded_or_refused() -> None:
    generator = random.Random(1)
    good = Header(Kind.DATA, 5, 1, 2, operation=3, sequence=9, dtype=b"<f8", count=10, payload=80, root=4).encode()
    assert decode(good).encode() == good
    kept = 0
    for _ in range(30_000):
        data = mutated(generator, good)[:64].ljust(64, b"\0")
        try:
            decode(data)
            kept += 1
        except ProtocolError:
            pass
    assert 0 < kept < 30_000


def test_sizes_are_checked_before_anything_is_allocated() -> None:
    for kind, size in ((Kind.DATA, (1 << 40) + 1), (Kind.ABORT, 4097), (Kind.PROBE, 1)):
        with pytest.raises(ProtocolError, match="at most"):
            decode(Header(kind, 1, 1, 1, payload=size).encode())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_listening_session_survives_a_hundred_thousand_random_and_mutated_frames() -> None:
    generator = random.Random(2)
    listeners = [Listener.unix(), Listener.unix()]
    record = Rendezvous.create([str(listener.address) for listener in listeners])
    path = listeners[0].address.path
    first = join_in_thread(record, 0, listeners[0], JoinOptions(join_timeout=280, timeout=20))
    hello = Hello(record.session, 0, 1, 0, 2).encode(b"n" * 16)
    frame = Header(Kind.DATA, session_number(record.session), 0, 1, operation=3, payload=80).encode() + b"\0" * 80
    for k in range(100_000):
        data = (generator.randbytes(generator.randint(0, 200)), mutated(generator, hello), mutated(generator, frame))[
            k % 3
        ]
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(path)  # waits while the queue of the listener is full
            with contextlib.suppress(OSError):
                stranger.sendall(data)
    second = join_in_thread(record, 1, listeners[1], JoinOptions(join_timeout=30, timeout=20))
    assert first() == second() == 10


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TlsContexts:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make_certificate(key, certificate)
    return contexts_of(key, certificate)


def make_certificate(key: Path, certificate: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )


def contexts_of(key: Path, certificate: Path) -> TlsContexts:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    return TlsContexts(server, client, "localhost")


@pytest.mark.processes
def test_collectives_run_over_tls(certificates: TlsContexts) -> None:
    from tests.collectives import oracle, ranks

    options = JoinOptions(tls=certificates)
    run_threads(ranks.check_everything, 3, ([np.dtype("d"), oracle.SPLIT],), transport="tcp", options=options)
    with pytest.raises(ValueError, match="native=True needs plain sockets"):
        run_threads(ranks.nothing, 2, transport="tcp", options=JoinOptions(tls=certificates, native=True))


@pytest.mark.processes
def test_a_rank_without_the_right_certificate_is_refused(certificates: TlsContexts, tmp_path: Path) -> None:
    make_certificate(tmp_path / "key.pem", tmp_path / "certificate.pem")
    other = contexts_of(tmp_path / "key.pem", tmp_path / "certificate.pem")
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(tls=certificates, join_timeout=20))
    with pytest.raises(AuthenticationError, match="TLS"):
        join(record, 1, Listener.tcp(), JoinOptions(tls=other, join_timeout=5))
    assert join_in_thread(record, 1, listeners[1], JoinOptions(tls=certificates, join_timeout=20))() == first() == 10


@pytest.mark.processes
def test_a_plain_rank_cannot_join_a_tls_session(certificates: TlsContexts) -> None:
    listeners = [Listener.tcp(), Listener.tcp()]
    record = record_for(*listeners)
    first = join_in_thread(record, 0, listeners[0], JoinOptions(tls=certificates, join_timeout=2))
    with pytest.raises((AuthenticationError, CollectiveTimeout)):
        join(record, 1, listeners[1], JoinOptions(join_timeout=1))
    with pytest.raises(CollectiveTimeout):
        first()
