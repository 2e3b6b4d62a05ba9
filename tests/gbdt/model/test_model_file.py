"""The model file: exact round trips, canonical bytes, an error for every damaged or hostile file, crashes survived."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import random
import runpy
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlgbm.gbdt.model.model_file import (
    ModelFileError,
    model_bytes,
    parse_model_bytes,
    read_model_file,
    write_model_file,
)
from dmlgbm.gbdt.system.atomic_file import write_atomically

ROOT = Path(__file__).resolve().parents[3]
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]

# Surrogates, alone or as a pair that must not melt into one character, are too rare to be met by chance.
characters = st.characters(exclude_categories=()) | st.sampled_from("\ud800\udc00\U00010000$")
strings = st.lists(characters, max_size=8).map("".join)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | strings
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4))
metadatas = st.dictionaries(strings | st.sampled_from(["$", "$float", "$$a"]), values, max_size=4)
dtypes = st.sampled_from(DTYPES).flatmap(lambda name: st.sampled_from("<>").map(np.dtype(name).newbyteorder))
some_arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
array_dicts = st.dictionaries(strings, some_arrays, max_size=4)


def small_model() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    metadata = {"objective": "binary", "rate": 0.1, "score": math.nan, "names": ["ä", "\ud800"], "n": 3}
    return metadata, {"flag": np.array([True, False]), "value": np.array([1.5, -0.0, np.nan]), "void": np.zeros((0, 3))}


def same_value(left: Any, right: Any) -> bool:
    """Equality that knows 1 from 1.0 and True, 0.0 from -0.0, and NaN from nothing."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_value(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, float):
        return repr(left) == repr(right)
    return bool(left == right)


def sealed(content: bytes) -> bytes:
    """`content` with a right checksum: what a hostile writer would send."""
    return content[:-32] + hashlib.sha256(content[:-32]).digest()


def forged(header: Any, payload: bytes = b"") -> bytes:
    """A file with a right prefix and checksum around any header (text, or a value to be written as JSON)."""
    text = header if isinstance(header, bytes) else json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = text.ljust(-(-(24 + len(text)) // 64) * 64 - 24, b"\0") + payload
    prefix = struct.pack("<7sBQQ", b"DMLGBM\0", 1, 24 + len(body) + 32, len(text))
    return sealed(prefix + body + bytes(32))


def forged_table(*rows: dict[str, Any], payload: bytes = bytes(64)) -> bytes:
    usual = {"name": "a", "dtype": "uint8", "shape": [64], "offset": 0, "length": 64}
    return forged({"arrays": [usual | row for row in rows], "metadata": {}}, payload)


# Round trips


@given(metadatas, array_dicts)
def test_any_content_comes_back_exactly(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    content = model_bytes(metadata, arrays)
    read_metadata, read_arrays = parse_model_bytes(content)
    assert same_value(read_metadata, metadata)
    assert list(read_arrays) == sorted(arrays)
    for name, array in arrays.items():
        read = read_arrays[name]
        assert (read.dtype, read.shape) == (array.dtype.newbyteorder("<"), array.shape)
        assert read.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert model_bytes(read_metadata, read_arrays) == content


@given(metadatas, array_dicts, st.randoms(use_true_random=False))
def test_equal_content_gives_equal_bytes_whatever_the_order_and_layout(
    metadata: dict[str, Any], arrays: dict[str, np.ndarray], shuffler: random.Random
) -> None:
    names = shuffler.sample(list(arrays), len(arrays))
    keys = shuffler.sample(list(metadata), len(metadata))
    other = {name: np.asfortranarray(arrays[name]).reshape(arrays[name].shape) for name in names}
    swapped = {name: array.astype(array.dtype.newbyteorder()) for name, array in other.items()}
    assert model_bytes({key: metadata[key] for key in keys}, swapped) == model_bytes(metadata, arrays)


def test_file_holds_the_same_bytes_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "model.dml"
    metadata, arrays = small_model()
    write_model_file(path, metadata, arrays)
    assert path.read_bytes() == model_bytes(metadata, arrays)
    read_metadata, read_arrays = read_model_file(path)
    assert same_value(read_metadata, metadata)
    assert all(read_arrays[name].tobytes() == array.tobytes() for name, array in arrays.items())


def test_read_arrays_are_writable_aligned_and_independent_of_the_input() -> None:
    content = bytearray(model_bytes({}, {"a": np.arange(9), "b": np.arange(9.0)}))
    _, arrays = parse_model_bytes(memoryview(b"x" + content)[1:])
    for array in arrays.values():
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0
    arrays["a"][:] = 0
    assert parse_model_bytes(content)[1]["a"].tolist() == list(range(9))


def test_format_does_not_change_unnoticed() -> None:
    content = model_bytes(*small_model())
    assert hashlib.sha256(content).hexdigest() == "202a1699935c4c3f31565d1c01380a01dd3705e53ba37e854fc95bb5a07e7f41"


@pytest.fixture(scope="module")
def documented_read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Any]:
    """The reader printed in the description of the format."""
    page = (ROOT / "docs" / "model_file.md").read_text(encoding="utf-8")
    program = tmp_path_factory.mktemp("docs") / "reader.py"
    program.write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    read: Callable[[bytes], Any] = runpy.run_path(str(program))["read"]
    return read


@given(metadata=metadatas, arrays=array_dicts)
def test_documented_reader_reads_every_file(
    documented_read: Callable[[bytes], Any], metadata: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    read_metadata, read_arrays = documented_read(model_bytes(metadata, arrays))
    assert same_value(read_metadata, metadata)
    for name, array in arrays.items():
        shape, flat = read_arrays[name]
        read = np.array(flat, array.dtype).reshape(shape)
        np.testing.assert_array_equal(read, array, strict=True)


# What cannot be stored


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth > 1 else []


def test_nesting_limit_is_the_same_for_writing_and_reading() -> None:
    content = model_bytes({"a": nested(62)}, {})
    assert parse_model_bytes(content)[0] == {"a": nested(62)}
    with pytest.raises(ValueError, match=r"metadata\['a'\].* 64 levels"):
        model_bytes({"a": nested(63)}, {})


@pytest.mark.parametrize(
    ("metadata", "arrays", "message"),
    [
        ({"a": [0, {1}]}, {}, r"metadata\['a'\]\[1\] is a set"),
        ({"a": np.float32(1)}, {}, r"metadata\['a'\] is a float32"),
        ({"a": {1: 2}}, {}, r"metadata\['a'\] has the key 1"),
        ({"a": 10**5000}, {}, r"metadata\['a'\] is an integer of more than 4096 bits"),
        ([], {}, "metadata must be a dict, got list"),
        ({}, {"x": [1]}, r"arrays\['x'\] must be a numpy array of .*, got list"),
        ({}, {"x": np.array(["a"])}, r"arrays\['x'\] .* got dtype <U1"),
        ({}, {"x": np.array([None])}, r"arrays\['x'\] .* got dtype object"),
        ({}, {1: np.zeros(1)}, "array names must be strings, got 1"),
        ({}, {"x": np.zeros((1,) * 33)}, r"arrays\['x'\] has 33 dimensions"),
    ],
)
def test_what_cannot_be_stored_is_named(metadata: Any, arrays: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        model_bytes(metadata, arrays)


def test_boolean_bytes_other_than_one_are_stored_as_one() -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert model_bytes({}, {"a": odd}) == model_bytes({}, {"a": np.array([False, True, True, True])})


# Damage


def test_every_flipped_bit_is_detected() -> None:
    content = model_bytes(*small_model())
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            with pytest.raises(ModelFileError, match=r"^model data (is|was) "):
                parse_model_bytes(damaged)


def test_flipped_bit_under_a_right_checksum_is_an_error_or_another_canonical_model() -> None:
    content = model_bytes(*small_model())
    for position in range(len(content) - 32):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            hostile = sealed(bytes(damaged))
            try:
                understood = parse_model_bytes(hostile)
            except ModelFileError:
                continue
            assert model_bytes(*understood) == hostile


def test_every_truncation_is_named(tmp_path: Path) -> None:
    content = model_bytes(*small_model())
    path = tmp_path / "model.dml"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=rf"^model file '.*model\.dml' is truncated: expected .* got {size}$"):
            read_model_file(path)
        with pytest.raises(ModelFileError, match=f"^model data is truncated: expected .* got {size}$"):
            parse_model_bytes(content[:size])


@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused(noise: bytes, with_magic: bool) -> None:
    with pytest.raises(ModelFileError):
        parse_model_bytes(b"DMLGBM\0\x01" + noise if with_magic else noise)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_random_header_under_a_right_checksum_is_refused(header: bytes, payload: bytes) -> None:
    with pytest.raises(ModelFileError):
        parse_model_bytes(forged(header, payload))


def with_version(version: int) -> bytes:
    content = bytearray(model_bytes({}, {}))
    content[7] = version
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(100), r"is not a DMLGBM model: it starts with b'PK\\x03\\x04"),
        (b"cos\nsystem\n(S'exit 1'\ntR.", "is not a DMLGBM model"),
        (with_version(3), "was written by a newer dmlgbm: format 3, this one reads up to 1"),
        (with_version(0), "format version 0 does not exist"),
        (model_bytes({}, {}) + b"\0", "is too long: expected .* bytes, got"),
        (
            struct.pack("<7sBQQ", b"DMLGBM\0", 1, 2**64 - 1, 2**64 - 1),
            f"is truncated: expected {2**64 - 1} bytes, got 24",
        ),
        (struct.pack("<7sBQQ", b"DMLGBM\0", 1, 128, 2**64 - 1) + bytes(104), "does not fit into 128 bytes"),
        (struct.pack("<7sBQQ", b"DMLGBM\0", 1, 24, 0), "header of 0 bytes does not fit into 24 bytes"),
        (forged(b"[" * 500_000), "nested more than 64"),
        (forged(b'{"arrays":[],"metadata":{"a":' + b"[" * 63 + b"]" * 63 + b"}}"), "nested more than 64"),
        (forged(b'"' + b'\\"' * 500_000), "not valid JSON"),
        (forged(b"\xff"), "not valid JSON"),
        (forged(b"[]"), "must hold 'arrays' and 'metadata'"),
        (forged({"arrays": [], "metadata": {}, "more": 1}), "must hold 'arrays' and 'metadata'"),
        (forged({"arrays": {}, "metadata": {}}), "'arrays' must be a list"),
        (forged({"arrays": [], "metadata": {"$float": "nan"}}), "'metadata' an object"),
        (forged({"arrays": [], "metadata": {}}, bytes(64)), "arrays take 0 bytes, the file has 64"),
        (forged(b'{"arrays":[],"metadata":{"a":1,"a":2}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"b":1,"a":2}}'), "canonical"),
        (forged(b'{"arrays":[], "metadata":{}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":NaN}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":1e999}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":%s}}' % (b"9" * 2000)), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":%s}}' % (b"9" * 100_000)), "not valid JSON|canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":{"$float":"1"}}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"a":{"$float":[]}}}'), "canonical"),
        (forged(b'{"arrays":[],"metadata":{"$a":1}}'), "canonical"),
        (forged({"arrays": [7], "metadata": {}}), "array table row"),
        (forged_table({"more": 1}), "array table row"),
        (forged_table({"name": 7}), "name 7, not a string"),
        (forged_table({"dtype": "object"}), "'a' has the unknown dtype 'object'"),
        (forged_table({"dtype": ["uint8"]}), "'a' has the unknown dtype"),
        (forged_table({"name": "x" * 100_000, "dtype": "O"}), "^.{1,120}$"),
        (forged_table({"shape": 64}), "impossible shape"),
        (forged_table({"shape": [-1, -64]}), "impossible shape"),
        (forged_table({"shape": [True, 64]}), "impossible shape"),
        (forged_table({"shape": [64.0]}), "impossible shape"),
        (forged_table({"shape": [1] * 33}), "impossible shape"),
        (forged_table({"shape": [2**32, 2**32, 64], "length": 64}), "impossible shape"),
        (forged_table({"shape": [0, 2**62, 4], "length": 0}), "impossible shape"),
        (forged_table({"shape": [2**60], "length": 2**60}), f"arrays take {2**60} bytes, the file has 64"),
        (forged_table({"shape": [65], "length": 64}), "length 64, its place is offset 0 and length 65"),
        (forged_table({"offset": 64}), "offset 64 and length 64, its place is offset 0"),
        (forged_table({"offset": -64}), "its place is offset 0"),
        (forged_table({}, {"name": "b"}), "'b' is declared with offset 0 and length 64, its place is offset 64"),
        (forged_table({}, {"offset": 64}, payload=bytes(128)), "not unique and sorted"),
        (forged_table({"name": "b"}, {"offset": 64}, payload=bytes(128)), "not unique and sorted"),
        (forged_table({"offset": 0.0}), "canonical"),
        (forged_table({"dtype": "bool"}, payload=b"\x02" * 64), "boolean array 'a' holds bytes other than 0 and 1"),
        (
            forged_table({"shape": [1], "length": 1}, {"name": "b", "offset": 64}, payload=b"\x01" * 128),
            "padding between its parts is not zero",
        ),
    ],
)
def test_hostile_content_is_refused_with_one_sentence(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        parse_model_bytes(content)
    assert "\n" not in str(caught.value)


def test_zero_padding_after_the_header_is_required() -> None:
    content = bytearray(model_bytes({}, {}))
    content[-33] = 1
    with pytest.raises(ModelFileError, match="padding"):
        parse_model_bytes(sealed(bytes(content)))


def test_what_is_not_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is not a regular file"):
        read_model_file(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="pipe' is not a regular file"):
        read_model_file(pipe)
    with pytest.raises(FileNotFoundError, match=r"absent\.dml"):
        read_model_file(tmp_path / "absent.dml")


def test_huge_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.dml"
    with path.open("wb") as file:
        file.write(model_bytes({}, {}))
        file.truncate(2**40)
    with pytest.raises(ModelFileError, match="is too long"):
        read_model_file(path)


# Atomic writing


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_gets_the_umask_default_and_an_existing_one_keeps_its_permissions(tmp_path: Path) -> None:
    plain, written = tmp_path / "plain", tmp_path / "written"
    plain.touch()
    write_atomically(written, b"1")
    assert mode_of(written) == mode_of(plain)
    for mode in (0o600, 0o664, 0o777):
        written.chmod(mode)
        write_atomically(written, b"2")
        assert (mode_of(written), written.read_bytes()) == (mode, b"2")


@pytest.mark.skipif(os.geteuid() != 0, reason="only a superuser can give files away")
def test_superuser_keeps_the_owner_of_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "model.dml"
    path.touch(mode=0o600)
    os.chown(path, 12345, 54321)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (12345, 54321, 0o600)


def test_symbolic_links_are_followed_and_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "link", tmp_path / "folder" / "target"
    link.symlink_to("folder/target")
    for data in (b"through a dangling link", b"through a link to a file"):
        write_atomically(link, data)
        assert link.is_symlink()
        assert target.read_bytes() == data
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomically(loop, b"")
    assert loop.is_symlink()


def test_long_file_names_and_bare_names_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("n" * 255, b"1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["n" * 255]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failure_at_any_step_keeps_the_old_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    path = tmp_path / "model.dml"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)) as caught:
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert isinstance(failure, KeyboardInterrupt) or str(path) in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.dml"]
    assert path.read_bytes() == b"old"


def test_targets_that_must_not_be_replaced_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_atomically(tmp_path, b"")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(pipe, b"")
    with pytest.raises(FileNotFoundError, match=r"absent/model\.dml"):
        write_atomically(tmp_path / "absent" / "model.dml", b"")
    kept = tmp_path / "kept"
    kept.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a superuser may write everything
    with pytest.raises(PermissionError, match="read-only"):
        write_atomically(kept, b"new")
    assert kept.read_bytes() == b"old"


# Crashes


REWRITE_FOREVER = """
import itertools, sys
import numpy as np
from dmlgbm.gbdt.model.model_file import write_model_file
for version in itertools.count():
    write_model_file(sys.argv[1], {"version": version}, {"a": np.full(20_000 + version % 7 * 5_000, version)})
    if version == 0:
        print("ready", flush=True)
"""

KILL_AT_STEP = """
import os, signal, sys
import numpy as np
from dmlgbm.gbdt.model.model_file import write_model_file
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], die)
write_model_file(sys.argv[1], {"version": 2}, {"a": np.full(100_000, 2)})
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def assert_is_one_version(path: Path) -> None:
    metadata, arrays = read_model_file(path)
    version = metadata["version"]
    np.testing.assert_array_equal(arrays["a"], np.full(20_000 + version % 7 * 5_000, version))


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_writer_killed_at_random_moments_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.dml"
    delays = random.Random(0)
    for _ in range(8):
        writer = start(REWRITE_FOREVER, str(path))
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            deadline = time.monotonic() + delays.uniform(0.0, 0.1)
            while time.monotonic() < deadline:
                assert_is_one_version(path)
        finally:
            writer.kill()
            writer.communicate()
        assert_is_one_version(path)


@pytest.mark.processes
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("step", "version"), [("fdopen", 1), ("chmod", 1), ("fsync", 1), ("replace", 1), ("close", 2)])
def test_writer_killed_at_each_step_leaves_the_old_file_or_the_new_one(tmp_path: Path, step: str, version: int) -> None:
    path = tmp_path / "model.dml"
    write_model_file(path, {"version": 1}, {"a": np.full(100_000, 1)})
    writer = start(KILL_AT_STEP, str(path), step)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    metadata, arrays = read_model_file(path)
    assert metadata == {"version": version}
    np.testing.assert_array_equal(arrays["a"], np.full(100_000, version))
