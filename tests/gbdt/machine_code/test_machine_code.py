"""Kernels run as machine code from disk, without numba, and numba takes over where that is not possible."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter
from dmlgbm.gbdt.kernels.layout import FEATURE, NODE, Buffers
from dmlgbm.gbdt.machine_code import cache_folders, object_files
from dmlgbm.gbdt.machine_code.argument_types import (
    as_json,
    digest_of,
    dtype_from_text,
    dtype_text,
    from_json,
    signature_of,
    type_texts,
)
from dmlgbm.gbdt.machine_code.compile_service import the_service
from dmlgbm.gbdt.machine_code.elf_object import LoadedObject, ObjectFileError, can_load_objects
from dmlgbm.gbdt.machine_code.kernel import Intrinsic, Kernel
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode
from dmlgbm.gbdt.machine_code.symbols import address_of

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]

needs_loader = pytest.mark.skipif(not can_load_objects(), reason="machine code is loaded on Linux with x86-64 only")

SEARCH = """
import sys
import numpy as np
from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import loader
bins = np.empty(4, np.uint8)
cuts = np.full(255, np.inf)
cuts[:2] = 1.0, 2.0
search_bins(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, bins)
print(bins.tolist(), loader.counts.compiled, loader.counts.from_disk, "numba" in sys.modules)
"""

TELL_CHILDREN = """
import os, pathlib
print(*(path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/children")), flush=True)
os._exit(0)
"""


def run(program: str, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Machine code is found in `cache` alone, not beside the sources."""
    alone = f"""
from dmlgbm.gbdt.machine_code import cache_folders
cache_folders.base_folders = lambda: (cache_folders.Path({str(cache / "dmlgbm")!r}),)
"""
    completed = subprocess.run(
        [sys.executable, "-c", alone + program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env=os.environ | environment,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed


def wanted_search() -> KernelTypes:
    arguments = (np.zeros(4), np.zeros(255), 3, np.zeros(4, np.uint8))
    assert isinstance(search_bins, Kernel)
    return KernelTypes(search_bins.name, type_texts(signature_of(arguments)))


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    cache = tmp_path_factory.mktemp("cache")
    return run(SEARCH + TELL_CHILDREN, cache), cache


@pytest.fixture
def cache(first_run: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path) -> Path:
    """A folder with the machine code of one kernel."""
    return Path(shutil.copytree(first_run[1], tmp_path / "copy"))


@needs_loader
def test_first_process_compiles_and_the_next_finds_it_and_neither_loads_numba(
    first_run: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    first, cache = first_run
    second = run(SEARCH, cache)
    assert first.stdout.splitlines()[0] == "[0, 1, 2, 3] 1 0 False"
    assert second.stdout.splitlines() == ["[0, 1, 2, 3] 0 1 False"]
    assert "compiling kernels" in first.stderr
    assert second.stderr == ""


@needs_loader
def test_processes_that_compile_end_with_the_process_that_asked(
    first_run: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    pids = [int(word) for word in first_run[0].stdout.splitlines()[1].split()]
    assert pids
    deadline = time.monotonic() + 60
    while any(is_compiler(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_compiler(pid) for pid in pids)


@needs_loader
def test_damaged_file_is_compiled_again(cache: Path) -> None:
    (path,) = cache.rglob("*.o")
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    assert run(SEARCH, cache).stdout == "[0, 1, 2, 3] 1 0 False\n"
    assert path.read_bytes() != sound[:-1]


@needs_loader
def test_numba_takes_over_when_no_process_can_be_started(tmp_path: Path) -> None:
    program = "import sys; sys.executable = '/nonexistent/python'\n" + SEARCH
    assert run(program, tmp_path).stdout == "[0, 1, 2, 3] 1 0 True\n"


@needs_loader
def test_machine_code_that_cannot_be_kept_is_used_from_memory(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    completed = run(SEARCH, not_a_folder / "below")
    assert completed.stdout == "[0, 1, 2, 3] 1 0 False\n"
    assert completed.stderr.count("compiled kernels stay in memory") == 1


@needs_loader
def test_processes_that_compile_end_when_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    program = "import dmlgbm.gbdt.machine_code.compile_service as service\nservice._IDLE_SECONDS = 0.5\n" + SEARCH
    program += """
import pathlib, time
deadline = time.monotonic() + 60
while time.monotonic() < deadline and any(p.read_text() for p in pathlib.Path("/proc/self/task").glob("*/children")):
    time.sleep(0.1)
"""
    assert run(program + TELL_CHILDREN, tmp_path).stdout.splitlines()[1].split() == []


def test_process_that_compiles_without_end_is_ended() -> None:
    program = """
import dmlgbm.gbdt.machine_code.compile_worker as worker
worker._MOST_CPU_SECONDS = 1
worker._limit_cpu_time()  # the time of the kernels before does not count
while True:
    pass
"""
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, check=False)
    assert completed.returncode == -signal.SIGXCPU, completed.stderr.decode()


@needs_loader
def test_request_that_comes_while_idle_processes_end_is_served(tmp_path: Path) -> None:
    program = """
import dmlgbm.gbdt.machine_code.compile_service as service
service._IDLE_SECONDS = 0.0
service.available_threads = lambda: 1
"""
    program += SEARCH
    program += """
for dtype in (np.uint16, np.uint32, np.int16):
    other = np.empty(4, dtype)
    search_bins(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, other)
    print(other.tolist())
"""
    assert run(program, tmp_path).stdout.splitlines()[1:] == ["[0, 1, 2, 3]"] * 3


def is_compiler(pid: int) -> bool:
    try:
        return b"compile_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@needs_loader
def test_kernel_is_compiled_for_a_forked_child(cache: Path) -> None:
    program = """
import os
child = os.fork()
if child == 0:
    wide = np.empty(4, np.uint16)
    search_bins(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, wide)
    os._exit(0 if wide.tolist() == [0, 1, 2, 3] else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run(SEARCH + program, cache).stdout.split()[-1] == "0"


def test_signature_tells_apart_what_machine_code_depends_on() -> None:
    array = np.zeros((4, 6))
    read_only = np.zeros((4, 6))
    read_only.flags.writeable = False
    buffers = Buffers(*(np.zeros(1) for _ in Buffers._fields))
    different: list[Any] = [
        array, array.T, array[:, ::2], read_only, array[0], array.astype(np.float32), np.zeros(4, NODE),
        np.zeros(4, FEATURE), 1, 1.0, True, np.uint64(1), np.float32(1), (array, 1), (array, 1.0), buffers,
    ]  # fmt: skip
    texts = [type_texts(signature_of((argument,))) for argument in different]
    assert len({digest_of(text) for text in texts}) == len(different)


@pytest.mark.parametrize("same", [(1, np.int64(5)), (True, np.bool_(False)), (2.0, np.float64(1.0))])
def test_python_and_numpy_numbers_share_machine_code(same: tuple[Any, Any]) -> None:
    one, other = (type_texts(signature_of((argument,))) for argument in same)
    assert one == other


@pytest.mark.parametrize("dtype", [np.dtype(np.float64), np.dtype(np.uint8), NODE, FEATURE])
def test_dtype_survives_being_text(dtype: np.dtype[Any]) -> None:
    text = json.loads(json.dumps(dtype_text(dtype)))
    assert dtype_from_text(text if isinstance(text, str) else from_json(text)) == dtype


def test_type_texts_survive_json() -> None:
    texts = type_texts(signature_of((np.zeros(3, NODE), 1, (np.zeros(2), 1.0))))
    assert from_json(json.loads(as_json(texts))) == texts


@pytest.mark.parametrize("argument", ["text", None, 1j, np.zeros(2, ">f8"), [1]])
def test_arguments_that_kernels_do_not_take_are_named(argument: Any) -> None:
    with pytest.raises(TypeError, match="kernels take"):
        type_texts(signature_of((argument,)))


def test_intrinsic_says_where_it_can_be_called() -> None:
    with pytest.raises(TypeError, match="prefetch can only be called by kernels"):
        Intrinsic("prefetch")(1)


def test_inlined_function_can_be_called_alone() -> None:
    first = hash_counter(np.uint64(1), np.uint64(2))
    assert first == hash_counter(np.uint64(1), np.uint64(2))
    assert first != hash_counter(np.uint64(1), np.uint64(3))


def test_unknown_symbol_is_named() -> None:
    for name in ("no_such_function_anywhere", "NRT_no_such_function", "numba_no_such_function"):
        with pytest.raises(ObjectFileError, match=name):
            address_of(name)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" * 100, b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_object_file_is_refused(data: bytes) -> None:
    with pytest.raises(ObjectFileError):
        LoadedObject(data, lambda name: 0)


@needs_loader
def test_object_file_with_an_unknown_relocation_is_refused() -> None:
    # Another test of this process may have had the kernel loaded and its file removed.
    code = object_files.read(wanted_search()) or the_service().compiled(wanted_search())
    with pytest.raises(ObjectFileError, match="relocation of type 9"):
        LoadedObject(with_relocations_of_type(code.object_file, 9), lambda name: 1)


def with_relocations_of_type(data: bytes, kind: int) -> bytes:
    table = int.from_bytes(data[40:48], "little")
    changed = bytearray(data)
    for number in range(int.from_bytes(data[60:62], "little")):
        entry = table + number * 64
        if int.from_bytes(data[entry + 4 : entry + 8], "little") == 4:
            offset, size = (int.from_bytes(data[entry + at : entry + at + 8], "little") for at in (24, 32))
            for position in range(offset, offset + size, 24):
                changed[position + 8 : position + 12] = kind.to_bytes(4, "little")
    return bytes(changed)


def keep_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (folder,))
    monkeypatch.setattr(cache_folders, "folder_to_write", cache_folders.folder_to_write.__wrapped__)


def test_object_files_give_back_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_in(tmp_path / "new", monkeypatch)
    wanted = wanted_search()
    called = KernelTypes("module:function", (("scalar", "int64"),))
    code = MachineCode(b"code\nwith lines", "from_python", "from_kernels", (called,))
    assert object_files.read(wanted) is None
    object_files.write(wanted, code)
    assert object_files.read(wanted) == code


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-4] + b"away"])
def test_damaged_file_counts_as_none(
    damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path, monkeypatch)
    object_files.write(wanted_search(), MachineCode(b"some code", "from_python", "from_kernels", ()))
    (path,) = tmp_path.glob("*/*.o")
    path.write_bytes(damage(path.read_bytes()))
    assert object_files.read(wanted_search()) is None
