"""The sources of an earlier commit in a folder of their own, so that both states can run side by side.

The folder holds no `benchmarks`: whatever is measured, the same code of today measures it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from benchmarks.run import PROJECT, Place

EXPORTS = PROJECT / ".cache" / "bench_check"
LEFT_OUT = ("benchmarks", "tests", "docs", "examples")


class NoSuchCommitError(Exception):
    """There is nothing to compare with; the message says what to do."""


def commit_of(reference: str | None) -> str:
    """The commit that is meant; without a reference the last one that differs from the checkout."""
    if reference is None:
        reference = "HEAD" if _git("status", "--porcelain", "--untracked-files=no").strip() else "HEAD~1"
    return _git("rev-parse", "--verify", f"{reference}^{{commit}}").decode().strip()


def place_of(commit: str) -> Place:
    """Where the package of a commit runs; its sources are exported unless they are there."""
    folder = EXPORTS / commit
    if not folder.exists():
        for other in EXPORTS.glob("*"):
            shutil.rmtree(other)
        unfinished = EXPORTS / f"{commit}.unfinished"
        unfinished.mkdir(parents=True)
        archive = _git("archive", "--format=tar", commit, "--", ".", *(f":(exclude){name}" for name in LEFT_OUT))
        with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
            sources.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    return Place(folders=(folder, PROJECT))


def check_place(place: Place) -> None:
    """The package must come from the first folder: comparing a state with itself would show nothing."""
    program = "import dmlgbm; print(dmlgbm.__file__)"
    asked = subprocess.run(
        [place.python, "-c", program], env=place.environment(), cwd=PROJECT, capture_output=True, text=True, check=True
    )
    found = Path(asked.stdout.strip())
    if not found.is_relative_to(place.folders[0]):
        raise NoSuchCommitError(f"dmlgbm was imported from {found}, not from {place.folders[0]}; unset PYTHONPATH")


def _git(*arguments: str) -> bytes:
    finished = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, check=False)
    if finished.returncode != 0:
        words = finished.stderr.decode().strip().splitlines()
        raise NoSuchCommitError(f"git {arguments[0]} failed ({(words or ['no message'])[-1]}); pass --against COMMIT")
    return finished.stdout
