"""Machine code that a wheel brings is used where sources, Python, numba and processor fit, and nowhere else."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import cache_folders, code_version, object_files, processor_level
from dmlgbm.gbdt.machine_code.argument_types import signature_of, type_texts
from dmlgbm.gbdt.machine_code.elf_object import can_load_objects
from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.numba_parts import SAME_RUNTIME
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode
from dmlgbm.gbdt.machine_code.processor_level import LEVELS

ROOT = Path(__file__).parents[3]
OF_V3 = "fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
OF_V4 = f"{OF_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
BROUGHT = MachineCode(b"brought", "from_python", "from_kernels", ())
CACHED = (
    processor_level.level_to_use,
    processor_level._description,
    processor_level.kind_of_processor,
    code_version.own_version,
    code_version.ready_made_version,
    code_version._has_the_same_runtime,
    code_version._installed,
    code_version._digest_of_sources,
)

# Kernels in one order and in the other.
MAKE_READY = """
import sys
from pathlib import Path
import numpy as np
from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.compile_service import the_service
from dmlgbm.gbdt.machine_code.ready_made import finish, make_ready
from tests.gbdt.machine_code.test_ready_made import wanted_search
cache_folders.base_folders = lambda: (Path(sys.argv[1]) / "cache",)
make_ready(Path(sys.argv[1]) / "objects")
wanted = [wanted_search(dtype) for dtype in (np.uint8, np.uint16, np.int32)]
for each in wanted if sys.argv[2] == "forwards" else wanted[::-1]:
    the_service().compiled(each)
finish()
"""


def wanted_search(dtype: type = np.uint8) -> KernelTypes:
    assert isinstance(search_bins, Kernel)
    arguments = (np.zeros(4), np.zeros(255), 3, np.zeros(4, dtype))
    return KernelTypes(search_bins.name, type_texts(signature_of(arguments)))


@pytest.fixture(autouse=True)
def _look_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """At the processor and the sources, which other tests know already and must know afterwards."""
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    for function in CACHED:
        function.cache_clear()
    yield
    monkeypatch.undo()
    for function in CACHED:
        function.cache_clear()


def pretend_processor(flags: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = folder / "cpuinfo"
    described.write_text(f"vendor_id\t: Somebody\nflags\t\t: {flags}\n\nvendor_id\t: Somebody\nflags\t\t: fpu\n")
    monkeypatch.setattr(processor_level, "_PROCESSOR", described)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (OF_V4, "x86-64-v4"),
        (OF_V4.replace("avx512vl", ""), "x86-64-v3"),
        (OF_V3, "x86-64-v3"),
        (OF_V3.replace("bmi2", ""), None),
        ("", None),
    ],
)
def test_level_is_the_best_of_which_the_processor_has_everything(
    flags: str, level: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_processor(flags, tmp_path, monkeypatch)
    assert processor_level.level_to_use() == level


def test_processor_that_is_not_described_has_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_level, "_PROCESSOR", tmp_path / "nothing")
    assert processor_level.level_to_use() is None
    assert code_version.ready_made_version(wanted_search().sources) is None


def test_code_for_a_chosen_processor_is_neither_brought_nor_that_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_processor(OF_V3, tmp_path, monkeypatch)
    sources = wanted_search().sources
    usual = code_version.own_version(sources)
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    for function in CACHED:
        function.cache_clear()
    assert code_version.ready_made_version(sources) is None
    assert code_version.own_version(sources) != usual


def test_versions_of_levels_are_different_and_know_the_sources_and_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels.py").write_text("one = 1")
    sources = frozenset([tmp_path])
    versions = [code_version.version_for_level(sources, level) for level in LEVELS]
    (tmp_path / "kernels.py").write_text("one = 2")
    code_version._digest_of_sources.cache_clear()
    versions += [code_version.version_for_level(sources, level) for level in LEVELS]
    monkeypatch.setattr("importlib.machinery.EXTENSION_SUFFIXES", [".cpython-399-x86_64-linux-gnu.so"])
    versions += [code_version.version_for_level(sources, level) for level in LEVELS]
    assert len({version.folder for version in versions}) == 6


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a kernel in an installation on a machine of the third level, with an empty cache."""
    pretend_processor(OF_V3, tmp_path, monkeypatch)
    monkeypatch.setattr(cache_folders, "READY_MADE", tmp_path / "objects")
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (tmp_path / "cache",))
    monkeypatch.setattr(cache_folders, "folder_to_write", cache_folders.folder_to_write.__wrapped__)
    monkeypatch.setattr(object_files, "_said", [])
    wanted = wanted_search()
    version = code_version.version_for_level(wanted.sources, "x86-64-v3")
    path = tmp_path / "objects" / version.folder / object_files.file_name(wanted)
    path.parent.mkdir(parents=True)
    path.write_bytes(object_files.as_file(wanted, BROUGHT, version))
    return path


def test_brought_code_is_used_until_there_is_code_of_this_machine(brought: Path) -> None:
    assert brought.exists()
    assert object_files.read(wanted_search()) == BROUGHT
    assert object_files.read(wanted_search(np.uint16)) is None
    compiled = MachineCode(b"compiled", "from_python", "from_kernels", ())
    object_files.write(wanted_search(), compiled)
    assert object_files.read(wanted_search()) == compiled


@pytest.mark.parametrize("flags", [OF_V4, OF_V3.replace("avx2", "")])
def test_brought_code_for_another_level_is_not_used(
    flags: str, brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_processor(flags, tmp_path, monkeypatch)
    for function in CACHED:
        function.cache_clear()
    assert object_files.read(wanted_search()) is None


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("version", ["0.59.1", "0.69.0", "1.0.0rc1", "new"])
def test_brought_code_is_not_used_with_a_numba_that_it_was_not_tested_with(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda package: version)
    assert object_files.read(wanted_search()) is None


def test_damaged_code_of_a_wheel_is_compiled_again_with_one_warning(
    brought: Path, caplog: pytest.LogCaptureFixture
) -> None:
    brought.write_bytes(brought.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "dmlgbm"):
        assert object_files.read(wanted_search()) is None
        assert object_files.read(wanted_search()) is None
    assert len(caplog.messages) == 1
    assert f"damaged machine code on disk ({brought.name}) is compiled again" in caplog.messages[0]


@pytest.mark.skipif(os.name != "posix", reason="files have no mode")
def test_brought_code_that_others_can_write_is_not_used(brought: Path) -> None:
    brought.chmod(0o666)
    assert object_files.read(wanted_search()) is None


def test_range_of_numba_with_the_same_runtime_is_that_of_the_project() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (numba,) = (requirement for requirement in stated if requirement.startswith("numba"))
    (major, first), (_, last) = SAME_RUNTIME
    assert numba == f"numba>={major}.{first},<{major}.{last + 1}"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not can_load_objects(), reason="machine code is loaded on Linux with x86-64 only")
def test_kernels_for_a_wheel_have_the_same_bytes_in_whatever_order_they_are_compiled(tmp_path: Path) -> None:
    found = []
    for order in ("forwards", "backwards"):
        subprocess.run(
            [sys.executable, "-c", MAKE_READY, str(tmp_path / order), order],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            timeout=100,
            check=True,
        )
        objects = tmp_path / order / "objects"
        found.append({path.relative_to(objects): path.read_bytes() for path in objects.rglob("*.o")})
    assert len(found[0]) == 3 * len(LEVELS)
    assert found[0] == found[1]
