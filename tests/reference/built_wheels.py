"""Wheels and source archives of this checkout, and environments in which nothing but a wheel provides `dmlgbm`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 400
# Compiling every kernel twice takes minutes.
WITHOUT_MACHINE_CODE = {"HATCH_BUILD_NO_HOOKS": "true"}


def run(*command: str | Path, folder: Path = ROOT, seconds: float = SECONDS, **environment: str) -> str:
    """What the command prints. Nothing but the interpreter's environment tells it where modules are."""
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_REQUIRE_VIRTUALENV")}
    completed = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=known | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def build(checkout: Path, folder: Path, target: str, seconds: float = SECONDS, **environment: str) -> Path:
    """A wheel or source archive in an empty folder."""
    command = (sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder)
    run(*command, folder=checkout, seconds=seconds, **environment)
    (built,) = folder.iterdir()
    return built


def files_of_wheel(wheel: Path) -> dict[str, bytes]:
    """Each file once."""
    with zipfile.ZipFile(wheel) as archive:
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        assert [name for name, count in Counter(names).items() if count > 1] == []
        return {name: archive.read(name) for name in names}


def new_environment(folder: Path) -> Path:
    """The interpreter of an empty environment that finds the libraries of the running one, but not this checkout."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # Plain lines: the .pth files of those folders, that of an editable install among them, are not read.
    (own / "libraries.pth").write_text("\n".join(libraries) + "\n", encoding="utf-8")
    return python


def install(python: Path, *what: str | Path) -> None:
    """Without looking anywhere else."""
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, *what, folder=python.parent)
