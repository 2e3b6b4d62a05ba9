"""How wheels are built: on Linux with x86-64 they bring the machine code of kernels, so that no first fit compiles.

Which kernels, and for which types of arguments, is found out by running the fits of `dmlgbm warmup`. Each is compiled
for all levels of processors (`gbdt/machine_code/processor_level.py`) and put beside the code that looks for it. Builds
of the same sources with the same libraries in the same folders give the same bytes.

This file is two things: hatchling's custom hook, and the backend that pip and other builders call. That is hatchling
itself, but asks for the libraries that the fits need. Editable installs, other systems and builds with
`HATCH_BUILD_NO_HOOKS=true` get Python files alone, and so does a build in which anything fails: it says why.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hatchling.build
from hatchling.build import *  # noqa: F403 - all other functions of a backend
from hatchling.builders.config import env_var_enabled
from hatchling.builders.constants import BuildEnvVars
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT = Path(__file__).resolve().parent
_IN_THE_WHEEL = "dmlgbm/gbdt/machine_code/objects"

_FIT = """
import sys
from pathlib import Path
from dmlgbm.command_line.main import main
from dmlgbm.gbdt.machine_code.ready_made import finish, make_ready
make_ready(Path(sys.argv[1]))
status = main(["warmup"])
finish()
sys.exit(status)
"""


class CannotCompileError(Exception):
    """Why there is no machine code."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What the build needs besides hatchling: all that the package itself needs, where its fits are to be run."""
    requirements = hatchling.build.get_requires_for_build_wheel(config_settings)
    if not _is_linux_on_x86_64() or env_var_enabled(BuildEnvVars.NO_HOOKS):
        return requirements
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*requirements, *project["dependencies"]]


class ReadyMadeKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts machine code into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is written."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        try:
            made = _make_machine_code(Path(self._folder.name))
        except CannotCompileError as reason:
            self.app.display_warning(f"The wheel brings no machine code, and first fits will compile: {reason}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(made)] = _IN_THE_WHEEL

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After it is written."""
        if version != "editable":
            self._folder.cleanup()


def _make_machine_code(folder: Path) -> Path:
    """The folder with the files for the wheel."""
    if not _is_linux_on_x86_64():
        raise CannotCompileError("this is not Linux on x86-64")
    sources, made = folder / "sources", folder / "made"
    # What earlier runs have compiled is not compiled again: a copy has nothing beside the sources.
    shutil.copytree(_ROOT / "dmlgbm", sources / "dmlgbm", ignore=shutil.ignore_patterns("__pycache__"))
    completed = subprocess.run(
        [sys.executable, "-P", "-c", _FIT, str(made)],
        cwd=folder,
        env=_environment(sources, folder / "cache"),
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        last_words = (completed.stderr.strip() or "no message").splitlines()[-1]
        raise CannotCompileError(f"{last_words} (exit code {completed.returncode})")
    return made


def _environment(sources: Path, cache: Path) -> dict[str, str]:
    """The builder's environment, without what would make other code of the same sources."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "DMLGBM_"))}
    paths = [str(sources), *filter(None, [environment.get("PYTHONPATH")])]
    return environment | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "NUMBA_CACHE_DIR": str(cache),
        "XDG_CACHE_HOME": str(cache),
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }


def _is_linux_on_x86_64() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32
