"""Rows in files that every process of a fit maps into its memory, and the commits of the fit beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neural.commits import Commit

if TYPE_CHECKING:
    from neural.running.local import LocalRows

_COMMIT = "commit.npz"


@dataclass(frozen=True)
class MappedRows:
    """A folder with arrays; sparse matrices are three arrays and a shape."""

    folder: Path
    shapes: dict[str, tuple[int, int]]

    @classmethod
    def write(cls, folder: Path, rows: LocalRows) -> MappedRows:
        """Put the rows into a folder."""
        shapes: dict[str, tuple[int, int]] = {}
        tables = {"training": (rows.inputs, rows.targets)}
        if rows.validation is not None:
            tables["validation"] = rows.validation
        for name, (inputs, targets) in tables.items():
            np.save(folder / f"{name}.targets.npy", targets)
            shapes[name] = inputs.shape
            if isinstance(inputs, np.ndarray):
                np.save(folder / f"{name}.inputs.npy", inputs)
                continue
            for part in ("data", "indices", "indptr"):
                np.save(folder / f"{name}.{part}.npy", getattr(inputs, part))
        return cls(folder, shapes)

    def read(self) -> LocalRows:
        """The rows, mapped and not copied."""
        from neural.running.local import LocalRows

        return LocalRows(*self._table("training"), self._table("validation") if "validation" in self.shapes else None)

    def _table(self, name: str) -> tuple[Any, Any]:
        targets = self._array(f"{name}.targets")
        if (self.folder / f"{name}.inputs.npy").exists():
            return self._array(f"{name}.inputs"), targets
        from scipy.sparse import csr_matrix

        parts = tuple(self._array(f"{name}.{part}") for part in ("data", "indices", "indptr"))
        return csr_matrix(parts, shape=self.shapes[name]), targets

    def _array(self, name: str) -> Any:
        # A plain array over the mapping: numpy takes slower paths for subclasses.
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))

    def write_commit(self, commit: Commit) -> None:
        """Replace the last commit in one step."""
        fresh = self.folder / f"{_COMMIT}.{os.getpid()}.new"
        with fresh.open("wb") as file:
            np.savez(file, **commit.to_arrays())  # type: ignore[arg-type]
        fresh.replace(self.folder / _COMMIT)

    def read_commit(self) -> Commit | None:
        """The last commit, if there is one."""
        path = self.folder / _COMMIT
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return Commit.from_arrays({name: arrays[name] for name in arrays.files})
