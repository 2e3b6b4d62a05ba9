"""Replacing a file in one step: after a crash at any moment the path holds the old content or the new one.

The bytes go to a temporary file in the same folder (renaming is atomic only inside one file system), are forced
to disk, and the temporary file is renamed over the target. A killed process can leave a `.dmlgbm-*.tmp` file
behind, which nothing reads and which may be deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

_FOLDER_SYNC_NOT_OFFERED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM}


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview, mode: int | None = None) -> None:
    """Make `data` the content of the file at `path`.

    A symbolic link is followed, so the link stays and its target changes. An existing file keeps its permissions
    and, where the system allows it, its owner; a new file gets what the umask gives any new file. With a `mode`, the
    file belongs to this user and has that mode, whatever was there before.
    """
    try:
        existing = _existing_file(Path(path))
        target = Path(path).resolve()
        _write_and_rename(target, data, existing if mode is None else None, mode)
        _sync_folder(target.parent)
    except OSError as error:
        raise OSError(error.errno, f"cannot write the file: {error.strerror}", os.fspath(path)) from error


def _existing_file(path: Path) -> os.stat_result | None:
    """The state of the file that will be replaced, once it is certain that replacing it is what the user means."""
    try:
        existing = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(existing.st_mode):
        raise IsADirectoryError(errno.EISDIR, "the path is a folder")
    if not stat.S_ISREG(existing.st_mode):
        # Renaming would turn a device such as /dev/null into an ordinary file.
        raise OSError(errno.EINVAL, "the path is a device, pipe or socket, not a regular file")
    if not os.access(path, os.W_OK):
        # Renaming needs only a writable folder, but whoever made the file read-only wants to keep it.
        raise PermissionError(errno.EACCES, "the existing file is read-only")
    return existing


def _write_and_rename(
    target: Path, data: bytes | memoryview, existing: os.stat_result | None, wanted_mode: int | None
) -> None:
    temporary = target.parent / f".dmlgbm-{secrets.token_hex(8)}.tmp"
    # A new file's mode is left to the kernel: reading the umask means changing it for every thread for a moment.
    # A replacement, or a file with a wanted mode, starts closed, so that others can never read a private file, or open
    # for writing one that they must not change, under its temporary name.
    mode = 0o666 if existing is None and wanted_mode is None else 0o600
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if existing is not None:
                _copy_permissions(existing, temporary)
            if wanted_mode is not None:
                temporary.chmod(wanted_mode)
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy_permissions(existing: os.stat_result, temporary: Path) -> None:
    if os.name == "posix":
        with contextlib.suppress(PermissionError):
            os.chown(temporary, existing.st_uid, existing.st_gid)
    # After chown, which may clear mode bits.
    temporary.chmod(stat.S_IMODE(existing.st_mode))


def _sync_folder(folder: Path) -> None:
    """Force the rename itself to disk, on the file systems that offer it."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _FOLDER_SYNC_NOT_OFFERED:
            raise
