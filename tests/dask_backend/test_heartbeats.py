"""When a worker counts as silent: only for its own silence, whatever clocks say and however busy the others are."""

from __future__ import annotations

from dmlgbm.dask_backend.heartbeats import Silence


def test_a_worker_without_heartbeats_is_silent_after_its_time() -> None:
    silence = Silence(10.0, 6.0)
    # The clock of the scheduler is a year off.
    found = [silence.silent_workers({"quiet": 3e7, "alive": 3e7 + now}, now) for now in (0.0, 3.0, 6.0, 9.0, 12.0)]
    assert found == [[], [], [], [], ["quiet"]]


def test_a_heartbeat_ends_the_silence() -> None:
    silence = Silence(10.0, 6.0)
    heartbeats = [1.0, 1.0, 1.0, 8.0, 8.0, 8.0]
    assert not any(silence.silent_workers({"late": seen}, 3.0 * look) for look, seen in enumerate(heartbeats))


def test_nobody_is_silent_because_the_scheduler_or_the_client_was_busy() -> None:
    silence = Silence(10.0, 6.0)
    assert silence.silent_workers({"one": 1.0}, 0.0) == []
    assert silence.silent_workers({"one": 1.0}, 500.0) == []
    assert silence.silent_workers({"one": 2.0}, 503.0) == []


def test_a_worker_that_comes_back_at_its_old_address_starts_anew() -> None:
    silence = Silence(10.0, 6.0)
    for now in (0.0, 5.0):
        assert silence.silent_workers({"one": 1.0}, now) == []
    assert silence.silent_workers({}, 8.0) == []
    assert silence.silent_workers({"one": 1.0}, 9.0) == []
    assert silence.silent_workers({"one": 1.0}, 14.0) == []


def test_many_workers_may_send_fewer_heartbeats() -> None:
    silence = Silence(10.0, 6.0)
    last_seen = dict.fromkeys(map(str, range(1000)), 1.0)
    found = [len(silence.silent_workers(last_seen, 5.0 * look)) for look in range(6)]
    assert found == [0, 0, 0, 0, 1000, 1000]  # 18 s, not 10
