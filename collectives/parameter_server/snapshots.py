"""Snapshots of a store in a folder: one file for each shard, and a list of them that is replaced in one step.

A shard's file is named after its content, so writing a new snapshot touches no file of the old one; the list, written
last, says which files belong together. Files no longer listed are removed afterwards. Contents are checked by digest
and then by the same reader that checks messages: nothing in a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.codec import decode, encode
from dmlgbm.collectives.parameter_server.errors import SnapshotError
from dmlgbm.collectives.parameter_server.messages import ShardCopy

_LIST = "snapshot.json"
_FORMAT = "parameter server snapshot 1"


def write_snapshot(folder: str | os.PathLike[str], copies: Sequence[ShardCopy], clock: int) -> None:
    """Make the folder hold these shards."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    shards = []
    for copy in copies:
        data = b"".join(map(bytes, encode(copy)))
        digest = hashlib.sha256(data).hexdigest()
        name = f"shard-{digest[:32]}.bin"
        if not (target / name).exists():
            _write(target / name, data)
        shards.append({"file": name, "sha256": digest, "bytes": len(data)})
    _write(target / _LIST, json.dumps({"format": _FORMAT, "clock": clock, "shards": shards}, indent=1).encode())
    listed = {shard["file"] for shard in shards}
    for path in target.glob("shard-*.bin"):
        if path.name not in listed:
            path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Make `data` the content of a file: after a crash it holds the old content or the new one."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_snapshot(folder: str | os.PathLike[str], n_shards: int) -> list[ShardCopy]:
    """The shards in a folder, in order, or SnapshotError."""
    source = Path(folder)
    try:
        content = json.loads((source / _LIST).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise SnapshotError(f"{source / _LIST} has format {content['format']!r}, not {_FORMAT!r}")
        shards = [(str(each["file"]), str(each["sha256"]), int(each["bytes"])) for each in content["shards"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"no readable snapshot in {source}: {error}") from error
    if len(shards) != n_shards:
        raise SnapshotError(f"the snapshot in {source} has {len(shards)} shards, the store {n_shards}")
    return [_read(source / Path(name).name, digest, size) for name, digest, size in shards]


def _read(path: Path, digest: str, size: int) -> Any:
    try:
        if path.stat().st_size != size:
            raise SnapshotError(f"{path} has {path.stat().st_size} bytes, not {size}: the snapshot is incomplete")
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise SnapshotError(f"{path} is damaged: its digest is not the one in {_LIST}")
        return decode(ShardCopy, data)
    except (OSError, ProtocolError) as error:
        raise SnapshotError(f"cannot read {path}: {error}") from error
