"""Whatever is wrong with object files or with the processes that make them, models train to the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import cache_folders, kernel_road, loader, object_files
from dmlgbm.gbdt.machine_code.argument_types import signature_of, type_texts
from dmlgbm.gbdt.machine_code.code_version import own_version
from dmlgbm.gbdt.machine_code.compile_service import the_service
from dmlgbm.gbdt.machine_code.elf_object import LoadedObject, can_load_objects
from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.object_files import KernelTypes
from tests.gbdt.machine_code.small_fits import Told, run_small_fits

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not can_load_objects(), reason="machine code is loaded on Linux with x86-64 only"),
]

# A kernel that the fits call from Python and that no other kernel calls: numba need not compile others with it.
DAMAGED = "tree_description.describe_splits-*.o"
TAKES_OVER = "this process compiles its kernels itself, with numba"


def wanted_search() -> KernelTypes:
    assert isinstance(search_bins, Kernel)
    arguments = (np.zeros(4), np.zeros(255), 3, np.zeros(4, np.uint8))
    return KernelTypes(search_bins.name, type_texts(signature_of(arguments)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Path]:
    """What the fits tell when nothing is wrong, and a folder with all their kernels."""
    cache = tmp_path_factory.mktemp("sound")
    folder = own_version(wanted_search().sources).folder
    for base in cache_folders.base_folders():
        if (base / folder).is_dir():
            # Other tests have compiled the kernel for other types: only what the fits call is to be there.
            ignore = shutil.ignore_patterns("*.numba", DAMAGED)
            shutil.copytree(base / folder, cache / folder, ignore=ignore, dirs_exist_ok=True)
    told = run_small_fits(cache=cache)
    assert (told.warnings, told.has_numba) == ([], False)
    return told, cache


@pytest.fixture
def cache(sound: tuple[Told, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound[1], tmp_path / "cache"))


def the_object(cache: Path) -> Path:
    (path,) = cache.rglob(DAMAGED)
    return path


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) * 3 // 4
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


def cut_header(data: bytes) -> bytes:
    return data.partition(b"\n")[0][:100] + b"\n" + data.partition(b"\n")[2]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, flip, cut_header, lambda data: b"", lambda data: b"[" * 100_000])
def test_damaged_file_is_replaced_with_one_warning_and_the_model_is_the_same(
    damage: Callable[[bytes], bytes], sound: tuple[Told, Path], cache: Path
) -> None:
    path = the_object(cache)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    told = run_small_fits(cache=cache)
    assert told.digests == sound[0].digests
    assert (told.compiled, told.has_numba) == (1, False)
    (warning,) = told.warnings
    assert f"damaged machine code on disk ({path.name}) is compiled again" in warning
    assert path.read_bytes() != damaged


def with_other_object(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put an object file into its place that was kept as it is: the digest is right."""
    line, _, object_file = path.read_bytes().partition(b"\n")
    changed = change(object_file)
    header = json.loads(line) | {"digest": hashlib.sha256(changed).hexdigest()}
    path.write_bytes(json.dumps(header).encode() + b"\n" + changed)


def for_another_machine(data: bytes) -> bytes:
    return data[:18] + (183).to_bytes(2, "little") + data[20:]  # AArch64


def with_an_unknown_symbol(data: bytes) -> bytes:
    known = b"\0PyArg_UnpackTuple\0"
    assert known in data
    return data.replace(known, b"\0PyArg_UnpackNobody"[: len(known) - 1] + b"\0")


def with_unknown_relocations(data: bytes) -> bytes:
    table = int.from_bytes(data[40:48], "little")
    changed = bytearray(data)
    for entry in range(table, table + 64 * int.from_bytes(data[60:62], "little"), 64):
        if int.from_bytes(data[entry + 4 : entry + 8], "little") == 4:
            offset, size = (int.from_bytes(data[entry + at : entry + at + 8], "little") for at in (24, 32))
            for position in range(offset, offset + size, 24):
                changed[position + 8 : position + 12] = (9).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        cut,
        for_another_machine,
        with_an_unknown_symbol,
        with_unknown_relocations,
        lambda data: b"",
        lambda data: b"\0" * 999,
    ],
)
def test_numba_takes_over_with_one_warning_when_an_object_cannot_be_loaded(
    change: Callable[[bytes], bytes], sound: tuple[Told, Path], cache: Path
) -> None:
    with_other_object(the_object(cache), change)
    assert_numba_took_over(run_small_fits(cache=cache), sound[0])


KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
KILLED_AT_WORK = "print('{}', flush=True)\ninput()\n" + KILLED
NO_JSON = "print('{}', flush=True)\ninput()\nprint('{\"done\": tr')"
NO_CODE = "print('{}', flush=True)\ninput()\nprint('{\"done\": true}')"
STRANGE_CODE = "print('{}', flush=True)\ninput()\nprint('{\"done\": true, \"code\": 5}')"
OUT_OF_MEMORY = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20,) * 2)\n"
WITHOUT_PARTS = "from numba.core import codegen\ndel codegen.CPUCodeLibrary\n"
SERVE = "from dmlgbm.gbdt.machine_code.compile_worker import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [KILLED, KILLED_AT_WORK, NO_JSON, NO_CODE, STRANGE_CODE, OUT_OF_MEMORY + SERVE, WITHOUT_PARTS + SERVE],
    ids=["killed", "killed at work", "no JSON", "no code", "strange code", "out of memory", "other numba"],
)
def test_numba_takes_over_with_one_warning_when_no_process_compiles(
    program: str, sound: tuple[Told, Path], cache: Path
) -> None:
    the_object(cache).unlink()
    first = f"from dmlgbm.gbdt.machine_code import compile_service\ncompile_service._PROGRAM = {program!r}\n"
    assert_numba_took_over(run_small_fits(first=first, cache=cache), sound[0])


@pytest.mark.slow
def test_numba_without_its_private_parts_takes_over_with_one_warning(sound: tuple[Told, Path], cache: Path) -> None:
    the_object(cache).unlink()
    first = f"""
from dmlgbm.gbdt.machine_code import compile_service
compile_service._PROGRAM = {WITHOUT_PARTS + SERVE!r}
from numba.core import caching, ccallback, codegen, compiler  # ccallback: numba itself has its NullCache by then
del caching.NullCache, codegen.CPUCodeLibrary, compiler.CompileResult._rebuild
"""
    assert_numba_took_over(run_small_fits(first=first, cache=cache), sound[0])
    assert not list(cache.rglob("*.numba"))


def assert_numba_took_over(told: Told, sound: Told) -> None:
    assert told.digests == sound.digests
    assert told.has_numba
    (warning,) = told.warnings
    assert TAKES_OVER in warning
    assert "every new process loses start-up time" in warning
    assert "memory" in warning


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        KeyError("symbol"),
        AttributeError("c_helpers"),
        PermissionError(13, "denied"),
        RecursionError("deep"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_exception_on_the_way_to_machine_code_gets_through(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(wanted: KernelTypes) -> None:
        raise error

    monkeypatch.setattr(object_files, "read", fail)
    monkeypatch.setattr(kernel_road, "_warned", [])
    assert isinstance(search_bins, Kernel)
    loader.prepare(search_bins, wanted_search())
    entries = [loader.entry_point(search_bins, wanted_search()) for _ in range(2)]
    bins, cuts = np.empty(4, np.uint8), np.full(255, np.inf)
    cuts[:2] = 1.0, 2.0
    for entry in entries:
        entry(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, bins)
        assert bins.tolist() == [0, 1, 2, 3]
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert type(error).__name__ in warning


def test_loading_an_object_file_that_is_cut_or_changed_anywhere_never_ends_the_process() -> None:
    # Another test of this process may have had the kernel loaded and its file removed.
    code = object_files.read(wanted_search()) or the_service().compiled(wanted_search())
    data = code.object_file
    for length in range(0, len(data), 61):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, `entry_point` takes it
            LoadedObject(data[:length], lambda name: 1)
    for position in range(0, len(data), 13):
        with contextlib.suppress(Exception):
            LoadedObject(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :], lambda name: 1)
    assert LoadedObject(data, lambda name: 1).addresses[code.entry_from_python]


def test_file_of_other_types_under_a_kernels_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (tmp_path,))
    monkeypatch.setattr(cache_folders, "folder_to_write", cache_folders.folder_to_write.__wrapped__)
    monkeypatch.setattr(object_files, "_said", [])
    wanted = wanted_search()
    other = KernelTypes(wanted.kernel, (("scalar", "int64"),))
    object_files.write(other, object_files.MachineCode(b"code", "from_python", "from_kernels", ()))
    (path,) = tmp_path.rglob("*.o")
    path.rename(path.with_name(f"{wanted.label}.o"))
    assert object_files.read(wanted) is None
