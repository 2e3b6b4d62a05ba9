"""The machine code in a wheel: first fits compile nothing, and give the bytes of code that is compiled on the spot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmlgbm.gbdt.machine_code.code_version import version_for_level
from dmlgbm.gbdt.machine_code.elf_object import can_load_objects
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, kernel_of_file
from dmlgbm.gbdt.machine_code.processor_level import LEVELS, level_to_use
from tests.reference.built_wheels import ROOT, build, files_of_wheel, install, new_environment, run

SECONDS_TO_BUILD, SECONDS_TO_FIT = 1_000, 900  # the checkout may have to compile
pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(SECONDS_TO_BUILD + 2 * SECONDS_TO_FIT),
    pytest.mark.skipif(not can_load_objects(), reason="wheels bring machine code on Linux with x86-64 only"),
    pytest.mark.skipif(level_to_use() is None, reason="the processor has no AVX2, or another was chosen"),
]

READY_MADE = "dmlgbm/gbdt/machine_code/objects/"
FUSED = re.compile(r"\svfn?m(?:add|sub)")
# The only source of a multiplication and an addition with one rounding.
ELEMENTWISE = "dmlgbm.gbdt.kernels.elementwise_math"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel", seconds=SECONDS_TO_BUILD)


@pytest.fixture(scope="module")
def python_with_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = new_environment(tmp_path_factory.mktemp("environment"))
    install(python, wheel)
    return python


def fits(python: Path | str, *kinds: str, **environment: str) -> dict[str, Any]:
    printed = run(python, ROOT / "tests/project/common_fits.py", *kinds, seconds=SECONDS_TO_FIT, **environment)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def of_the_checkout(*kinds: str) -> dict[str, Any]:
    """With code that was compiled for this very processor."""
    return fits(sys.executable, *kinds, PYTHONPATH=str(ROOT))


def kernels_of(wheel: Path) -> dict[str, dict[KernelTypes, bytes]]:
    """For each level the object files, under the folders that this Python looks into."""
    files = {name: data for name, data in files_of_wheel(wheel).items() if name.startswith(READY_MADE)}
    found: dict[str, dict[KernelTypes, bytes]] = {level: {} for level in LEVELS}
    for name, data in files.items():
        kernel = kernel_of_file(data)
        folder = name.removeprefix(READY_MADE).partition("/")[0]
        (level,) = (each for each in LEVELS if version_for_level(kernel.sources, each).folder == folder)
        found[level][kernel] = data.partition(b"\n")[2]
    return found


def test_first_fit_of_every_common_kind_compiles_nothing_and_gives_the_bytes_of_the_checkout(
    python_with_wheel: Path, tmp_path: Path
) -> None:
    told = fits(python_with_wheel, NUMBA_CACHE_DIR=str(tmp_path))
    assert (set(told["compiled"].values()), told["warnings"]) == ({0}, [])
    assert told["from_disk"] > 50
    assert [path.name for path in tmp_path.rglob("*.o")] == [], "workers of the cluster have compiled"
    assert told["digests"] == of_the_checkout()["digests"]


def test_damaged_file_of_the_wheel_is_compiled_with_one_warning_and_the_model_is_the_same(
    wheel: Path, tmp_path: Path
) -> None:
    python = new_environment(tmp_path / "environment")
    install(python, wheel)
    for path in (tmp_path / "environment").rglob("gradients.squared_error_gradients-*.o"):
        path.write_bytes(path.read_bytes()[:-9])
    cache = tmp_path / "cache"
    told = fits(python, "settings", NUMBA_CACHE_DIR=str(cache))
    (warning,) = told["warnings"]
    assert "damaged machine code on disk (gradients.squared_error_gradients-" in warning
    assert told["compiled"] == {"settings": 1}
    assert told["digests"] == of_the_checkout("settings")["digests"]
    assert fits(python, "settings", NUMBA_CACHE_DIR=str(cache))["warnings"] == []


def test_wheel_is_for_this_python_and_system_and_holds_the_same_kernels_for_each_level(wheel: Path) -> None:
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.endswith(f"-{version}-{version}-linux_x86_64.whl")
    kernels = kernels_of(wheel)
    names = {level: set(of_level) for level, of_level in kernels.items()}
    assert names["x86-64-v3"] == names["x86-64-v4"]
    assert len(names["x86-64-v3"]) > 100


def n_fused(object_file: bytes, folder: Path) -> int:
    path = folder / "kernel.o"
    path.write_bytes(object_file)
    listed = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    return len(FUSED.findall(listed.stdout))


def modules_with_fused_operations() -> Iterator[str]:
    for path in (ROOT / "gbdt/kernels").glob("*.py"):
        if f"from {ELEMENTWISE} import" in path.read_text(encoding="utf-8"):
            yield f"dmlgbm.gbdt.kernels.{path.stem}"


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump of binutils")
def test_all_levels_round_alike_because_nothing_is_fused_but_what_kernels_ask_for(wheel: Path, tmp_path: Path) -> None:
    # All other arithmetic rounds each operation as IEEE 754 says, whatever the width of the vectors. How many there are
    # in a kernel depends on that width too.
    fused = {
        level: {kernel.kernel for kernel, data in of_level.items() if n_fused(data, tmp_path) > 0}
        for level, of_level in kernels_of(wheel).items()
    }
    assert fused["x86-64-v3"] == fused["x86-64-v4"] != set()
    assert {kernel.partition(":")[0] for kernel in fused["x86-64-v3"]} <= set(modules_with_fused_operations())
