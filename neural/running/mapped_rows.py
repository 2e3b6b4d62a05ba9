"""Rows in files that every process of a fit maps into its memory, and the commits of the fit beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.neural.commits import Commit

if TYPE_CHECKING:
    from dmlgbm.neural.running.local import LocalRows

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
        tables = {"training": rows}
        if rows.validation is not None:
            tables["validation"] = rows.validation
        for name, table in tables.items():
            inputs = table.inputs
            np.save(folder / f"{name}.targets.npy", table.targets)
            if table.weights is not None:
                np.save(folder / f"{name}.weights.npy", table.weights)
            shapes[name] = inputs.shape
            if isinstance(inputs, np.ndarray):
                np.save(folder / f"{name}.inputs.npy", inputs)
                continue
            for part in ("data", "indices", "indptr"):
                np.save(folder / f"{name}.{part}.npy", getattr(inputs, part))
        return cls(folder, shapes)

    def read(self) -> LocalRows:
        """The rows, mapped and not copied."""
        watched = self._table("validation") if "validation" in self.shapes else None
        return replace(self._table("training"), validation=watched)

    def _table(self, name: str) -> LocalRows:
        from dmlgbm.neural.running.local import LocalRows

        has_weights = (self.folder / f"{name}.weights.npy").exists()
        weights = self._array(f"{name}.weights") if has_weights else None
        return LocalRows(self._inputs(name), self._array(f"{name}.targets"), weights)

    def _inputs(self, name: str) -> Any:
        if (self.folder / f"{name}.inputs.npy").exists():
            return self._array(f"{name}.inputs")
        from scipy.sparse import csr_matrix

        parts = tuple(self._array(f"{name}.{part}") for part in ("data", "indices", "indptr"))
        return csr_matrix(parts, shape=self.shapes[name])

    def _array(self, name: str) -> Any:
        # A plain array over the mapping: numpy takes slower paths for subclasses.
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))

    def write_commit(self, commit: Commit) -> None:
        """Replace the last commit in one step."""
        fresh = self.folder / f"{_COMMIT}.{os.getpid()}.new"
        fresh.write_bytes(commit.to_bytes())
        fresh.replace(self.folder / _COMMIT)

    def read_commit(self) -> Commit | None:
        """The last commit, if there is one."""
        path = self.folder / _COMMIT
        if not path.exists():
            return None
        return Commit.from_bytes(path.read_bytes())
