"""Objects on their way to a worker and back: pickles whose large arrays lie beside them, to be mapped and not copied.

Everything here passes between a client and workers that it has started or been given, over their own channels;
nothing is read from files of others.
"""

from __future__ import annotations

import mmap
import pickle
import struct
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from shutil import disk_usage
from typing import IO, Any

import cloudpickle

from dmlgbm.tuning.plan import UnitResult

_ALIGNMENT = 64
_SHARED_MEMORY = Path("/dev/shm")
_LENGTH = struct.Struct("<q")


def dumps(value: Any) -> bytes:
    """A pickle that also takes functions and classes of the user's script along."""
    return bytes(cloudpickle.dumps(value, protocol=5))


def loads(data: Any) -> Any:
    """The value behind `dumps`."""
    return pickle.loads(data)


def portable(result: UnitResult) -> UnitResult:
    """The result, with an error that is sure to survive the way to the client, and says where it came from."""
    error = result.error
    if error is None:
        return result
    origin = "".join(traceback.format_exception(error))
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        error = loads(dumps(error))
        assert error is not None
    except Exception:  # noqa: BLE001 - whatever pickle cannot do with somebody's exception
        error = RuntimeError(f"{type(result.error).__name__}: {result.error}")
    error.add_note(f"On the worker:\n{origin}")
    result.error = error
    return result


class Blob:
    """A value in an unnamed file: workers that get its descriptor map the arrays in it instead of copying them.

    The file has no name, so nothing is left behind however the processes end.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        views = [each.raw() for each in buffers]
        self.n_bytes = len(head) + sum(view.nbytes for view in views)
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=_directory_for(self.n_bytes))  # noqa: SIM115 - lives on
        _write_parts(self.file, [memoryview(head), *views])
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def mapped_value(descriptor: int) -> Any:
    """The value of a blob. Its arrays are mapped pages; writing to them changes nobody else's."""
    # The arrays keep the mapping alive; it goes away with the last of them.
    parts = _read_parts(memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)))
    return pickle.loads(parts[0], buffers=parts[1:])


def _directory_for(n_bytes: int) -> Path | None:
    """Memory where there is room for it, else where temporary files go."""
    if _SHARED_MEMORY.is_dir() and disk_usage(_SHARED_MEMORY).free > 2 * n_bytes:
        return _SHARED_MEMORY
    return None


def _write_parts(file: IO[bytes], parts: Sequence[memoryview]) -> None:
    sizes = [part.nbytes for part in parts]
    file.write(_LENGTH.pack(len(sizes)) + b"".join(map(_LENGTH.pack, sizes)))
    for part in parts:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        file.write(part)


def _read_parts(pages: memoryview) -> list[memoryview]:
    (n_parts,) = _LENGTH.unpack_from(pages, 0)
    sizes = [_LENGTH.unpack_from(pages, _LENGTH.size * (1 + part))[0] for part in range(n_parts)]
    parts = []
    position = _LENGTH.size * (1 + n_parts)
    for size in sizes:
        position += -position % _ALIGNMENT
        parts.append(pages[position : position + size])
        position += size
    return parts
