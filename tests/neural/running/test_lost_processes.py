"""A killed process costs the epoch it was in: the ranks that are left go on from the last commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.collectives import Communicator
from dmlgbm.gbdt.ranks.losses import TrainingLostError
from dmlgbm.neural.batches import Batch
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.running import local
from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.local import LocalRows, train_here
from dmlgbm.neural.running.mapped_rows import MappedRows
from dmlgbm.neural.strategies.allreduce import AllReduce
from dmlgbm.neural.training import Job, Trained
from tests.neural.runs import alone, job, rows

KILLED_IN_EPOCH = 3


def die_once(communicator: Communicator, job: Job, mapped: MappedRows, number: int = signal.SIGKILL) -> Trained | None:
    """The work of a process; rank 1 of the first generation is killed in its fourth epoch."""
    step, mark = AllReduce.step, mapped.folder / "killed"

    def step_or_die(self: AllReduce, context: RankContext, batch: Batch) -> float:
        if context.epoch == KILLED_IN_EPOCH and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), number)
        return step(self, context, batch)

    if communicator.rank == 1:
        AllReduce.step = step_or_die  # type: ignore[method-assign]
    return local.work_in_process(communicator, job, mapped)


@pytest.mark.fault
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_the_others_go_on_to_the_weights_of_a_quiet_run(n_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    asked = job(max_epochs=6)
    monkeypatch.setattr(local, "rank_work", die_once)
    survivor = Survivor(asked, max_restarts=1)
    trained = train_here(asked, LocalRows(X, y), n_ranks, "processes", survivor)
    assert len(survivor.losses) == 1
    assert "after 3 epochs: rank 1" in survivor.losses[0]
    assert [len(epoch["ranks"]) for epoch in trained.so_far.epochs] == [n_ranks] * 3 + [n_ranks - 1] * 3
    np.testing.assert_allclose(trained.parameters, alone(asked, X, y).parameters, rtol=0, atol=1e-9)


def stop_once(communicator: Communicator, job: Job, mapped: MappedRows) -> Trained | None:
    return die_once(communicator, job, mapped, signal.SIGSTOP)


@pytest.mark.fault
def test_a_stopped_process_is_lost_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    asked = job(max_epochs=6)
    monkeypatch.setattr(local, "rank_work", stop_once)
    survivor = Survivor(asked, max_restarts=1)
    trained = train_here(asked, LocalRows(X, y), 2, "processes", survivor, rank_timeout=10.0)
    assert "after 3 epochs: rank 1 gave no sign of life for 10 s" in survivor.losses[0]
    np.testing.assert_allclose(trained.parameters, alone(asked, X, y).parameters, rtol=0, atol=1e-9)


NOTEBOOK = """
import numpy as np, torch
from dmlgbm import DMLTorchClassifier

class Doubled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    def forward(self, rows):
        return 2 * self.inner(rows)

X = np.random.default_rng(0).normal(size=(60, 3))
y = (X[:, 0] > 0).astype(int)
models = [DMLTorchClassifier(Doubled(), max_epochs=3, random_state=0, backend="processes", n_ranks=n) for n in (1, 2)]
models[1].module.load_state_dict(models[0].module.state_dict())
one, two = (model.fit(X, y).parameters_ for model in models)
np.testing.assert_allclose(one, two, rtol=0, atol=1e-9)
print("the same")
"""


@pytest.mark.slow
def test_modules_of_a_notebook_reach_the_processes() -> None:
    pytest.importorskip("torch")
    # Code without a file, as a notebook has it.
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout.strip() == "the same", done.stderr


@pytest.mark.fault
def test_too_many_losses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    asked = job(max_epochs=6)
    monkeypatch.setattr(local, "rank_work", die_once)
    with pytest.raises(TrainingLostError, match="max_restarts=0"):
        train_here(asked, LocalRows(X, y), 2, "processes", Survivor(asked, max_restarts=0))


def test_commits_are_written_and_read_whole(tmp_path: Path) -> None:
    X, y = rows()
    commits: list[Commit] = []
    asked = job(max_epochs=2, batch_norm=True)
    alone(asked, X, y, on_commit=commits.append)
    mapped = MappedRows.write(tmp_path, LocalRows(X, y, weights=y + 0.5, validation=LocalRows(X[:5], y[:5])))
    assert mapped.read_commit() is None
    mapped.write_commit(commits[0])
    read = mapped.read_commit()
    assert read is not None
    again = alone(asked, X, y, start=read)
    np.testing.assert_array_equal(again.parameters, commits[1].parameters)
    np.testing.assert_array_equal(again.buffers, commits[1].buffers)
    assert [epoch["epoch"] for epoch in again.so_far.epochs] == [0, 1]
    np.testing.assert_array_equal(mapped.read().inputs, X)
