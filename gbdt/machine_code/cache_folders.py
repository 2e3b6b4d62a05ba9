"""Where compiled code is kept: read from every folder that may hold it, written to the first one that takes it.

Whoever can write such a file decides what this process runs. So a file counts only if it and its folders, up to the
base folder, belong to the user or to root and nobody else can write them, and if no stranger can lead the path to the
base folder elsewhere. The same holds for what numba compiled in place (`kept_results`), which is unpickled.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from dmlgbm.gbdt.system.atomic_file import write_atomically

logger = logging.getLogger("dmlgbm")

_SOURCES = Path(__file__).parent
READY_MADE = _SOURCES / "objects"  # what a wheel brings; a checkout has no such folder
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_MOST_LINKS = 40  # as many as Linux follows
_ROOT = 0


class UntrustedFileError(Exception):
    """Somebody else could have written the file."""


@cache
def base_folders() -> tuple[Path, ...]:
    """The folders that may hold compiled code, in the order in which they are looked at."""
    own = _user_cache()
    return (*_chosen_folders(), _SOURCES / "__pycache__", *([own / "dmlgbm"] if own is not None else []))


def _chosen_folders() -> tuple[Path, ...]:
    """The folder that the user names, if any; a relative name means nothing once the current folder is deleted."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        with suppress(FileNotFoundError):
            return (Path(chosen).absolute() / "dmlgbm",)
    return ()


def _user_cache() -> Path | None:
    """The user's cache folder; None for a user without a home."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and no such user
        return None
    return home / ".cache" if home.is_absolute() else None


@cache
def folder_to_write() -> Path | None:
    """The first of the base folders in which this process can keep something."""
    for base in base_folders():
        with suppress(OSError):
            _make_folder(base)
            if _is_trusted_base(base):
                if os.access(base, os.W_OK | os.X_OK):
                    return base
            elif base in _chosen_folders():
                _say_that_it_is_not_used(base)
    return None


def _make_folder(path: Path) -> None:
    """With those around it, none of which others can write, whatever the umask."""
    if not path.exists():
        _make_folder(path.parent)
        path.mkdir(_FOLDER_MODE, exist_ok=True)


def read_file(folder: str, name: str) -> bytes | None:
    """A file of a folder below the first base folder that has it and can be trusted."""
    return _first_trusted(base_folders(), folder, name)


def read_ready_made(folder: str, name: str) -> bytes | None:
    """A file that came with the package."""
    return _first_trusted((READY_MADE,), folder, name)


def _first_trusted(bases: tuple[Path, ...], folder: str, name: str) -> bytes | None:
    for base in bases:
        try:
            return _read_trusted(base, folder, name)
        except UntrustedFileError:
            _say_that_it_is_not_used(base / folder)
        except OSError:
            continue
    return None


def write_file(folder: str, name: str, data: bytes) -> bool:
    """Keep a file for other processes; False if there is no place for it."""
    base = folder_to_write()
    if base is None:
        return False
    try:
        (base / folder).mkdir(_FOLDER_MODE, exist_ok=True)
        if not is_trusted((base / folder).lstat()):
            # A stranger may have been first where a group, or everybody, can make folders.
            _say_that_it_is_not_used(base / folder)
            return False
        write_atomically(base / folder / name, data, mode=_FILE_MODE)
    except OSError as error:
        logger.info("%s cannot be kept in %s: %s", name, base / folder, error)
        return False
    return True


def _read_trusted(base: Path, folder: str, name: str) -> bytes:
    """Folder and file are looked at by descriptor: what was found good cannot be exchanged before it is read."""
    if os.name != "posix":  # where files have no owner and mode
        return (base / folder / name).read_bytes()
    # A symbolic link in place of the folder could be a stranger's, and lead to files of the user's that are no code of
    # ours.
    of_folder = os.open(base / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=of_folder), "rb") as file:
            states = os.fstat(of_folder), os.fstat(file.fileno())
            if not (_is_trusted_base(base) and all(map(is_trusted, states))):
                raise UntrustedFileError
            return file.read()
    finally:
        os.close(of_folder)


def is_trusted(state: os.stat_result) -> bool:
    """Whether only the user and root can have written a file, or what is in a folder."""
    # Images for any user without a name give everything to root's group.
    by_group = state.st_mode & stat.S_IWGRP and state.st_gid != _ROOT
    return _is_ours(state) and not by_group and not state.st_mode & stat.S_IWOTH


def _is_trusted_base(base: Path) -> bool:
    """Whether it is ours, and strangers cannot replace it or the folders in it.

    A group may: each version's folder is looked at too.
    """
    return _is_ours(base.stat()) and _is_trusted_way(base, _MOST_LINKS)


def _is_trusted_way(path: Path, links_left: int) -> bool:
    """Whether strangers can replace no folder on the way to a path, itself included, nor have made a symbolic link.

    Who owns the folders above is not asked: inside containers that is often a user without a name. Their owner can
    make symbolic links, which count as a stranger's, but no folders that belong to this user.
    """
    for place in (*reversed(path.parents), path):
        state = place.lstat()
        if stat.S_ISLNK(state.st_mode):
            further = place.parent / place.readlink() / path.relative_to(place)
            return _is_ours(state) and links_left > 0 and _is_trusted_way(further, links_left - 1)
        if state.st_mode & stat.S_IWOTH and not state.st_mode & stat.S_ISVTX and os.name == "posix":
            return False
    return True


def _is_ours(state: os.stat_result) -> bool:
    return os.name != "posix" or state.st_uid in (os.geteuid(), _ROOT)


@cache
def _say_that_it_is_not_used(folder: Path) -> None:
    logger.warning(
        "compiled kernels in %s are not used: they or a folder on the way to them belong to another user, or others "
        "can write them. Take the right to write from others, or set NUMBA_CACHE_DIR to another folder.",
        folder,
    )


@cache
def say_that_nothing_is_kept() -> None:
    """Once a process."""
    logger.warning(
        "compiled kernels stay in memory and every process makes them again, because none of these folders can be "
        "written to: %s. Set NUMBA_CACHE_DIR to one that can.",
        ", ".join(map(str, base_folders())),
    )
