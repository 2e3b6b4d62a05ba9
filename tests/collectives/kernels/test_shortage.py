"""Ranks sleep at once where more threads want to run than there are cores, and spin again afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.collectives import JoinOptions
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.collectives.kernels.shortage import AVAILABLE, cores_are_short, count_runnable
from dmlgbm.collectives.kernels.system_calls import DESCRIPTOR, new_scratch
from dmlgbm.collectives.spinning import close_scratch, scratch_of_rank
from dmlgbm.gbdt.system.cores import usable_cores
from tests.collectives import ranks

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="the system does not tell how many threads want to run")

MILLISECOND = 1_000_000


def test_a_shortage_is_believed_after_some_looks_and_so_is_its_end(tmp_path: Path) -> None:
    load = tmp_path / "loadavg"
    load.write_text("0.10 12.05 3.00 3/345 6789\n")
    with load.open() as opened:
        scratch = new_scratch(opened.fileno(), 2)
        assert count_runnable(scratch) == 3
        found = [cores_are_short(scratch, look * MILLISECOND) for look in range(1, 21)]
        assert found == 10 * [False] + 10 * [True]
        load.write_text("0.10 12.05 3.00 2/345 6789\n")
        assert cores_are_short(scratch, 20 * MILLISECOND + 1)  # too soon for another look
        assert [cores_are_short(scratch, look * MILLISECOND) for look in range(30, 34)] == [True, False, False, False]


@pytest.mark.parametrize("text", ["", "0.10 12.05 3.00", "0.10 12.05 3.00 x"])
def test_what_cannot_be_read_is_no_shortage(tmp_path: Path, text: str) -> None:
    load = tmp_path / "loadavg"
    load.write_text(text)
    with load.open() as opened:
        assert count_runnable(new_scratch(opened.fileno(), 2)) == -1
    assert count_runnable(new_scratch(1 << 20, 2)) == -1
    assert not cores_are_short(new_scratch(), MILLISECOND)


@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_ranks_that_find_cores_short_give_the_same_bits(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = tmp_path / "loadavg"
    load.write_text("9.00 9.00 9.00 99/345 6789\n")
    monkeypatch.setattr("dmlgbm.collectives.spinning.LOAD_FILE", str(load))
    options = JoinOptions(spin_microseconds=1000)
    run_threads(ranks.check_everything, 3, ([np.dtype("l")],), transport=transport, options=options)


@pytest.mark.fault
def test_programs_that_take_all_cores_are_noticed() -> None:
    scratch = scratch_of_rank(1000)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(usable_cores())]
    try:
        if scratch[DESCRIPTOR] < 0:
            pytest.skip("this process may not run on all cores")
        deadline = time.monotonic() + 60
        while not cores_are_short(scratch, time.monotonic_ns()) and time.monotonic() < deadline:
            sum(range(20_000))  # this thread, too, wants to run
        assert cores_are_short(scratch, time.monotonic_ns())
    finally:
        close_scratch(scratch)
        for process in busy:
            process.kill()
            process.wait(timeout=10)
