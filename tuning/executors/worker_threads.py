"""The surroundings of a unit on a worker: its share of the cores, and where what it starts itself runs.

A fit inside a search must not take the whole machine: other fits run beside it. And it must not start a cluster of
its own: a search inside a search runs where it is, and joblib inside a fit uses threads, as inside joblib's own
workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from joblib import parallel_config

from dmlgbm.gbdt.system.cores import limited_threads

_inside: ContextVar[bool] = ContextVar("inside a unit", default=False)


def inside_a_unit() -> bool:
    """Whether the caller is itself part of a search that runs on workers."""
    return _inside.get()


@contextlib.contextmanager
def fit_environment(n_threads: int) -> Iterator[None]:
    """Wrap `run_unit` in this on a worker."""
    token = _inside.set(True)
    try:
        with limited_threads(n_threads), parallel_config("threading"):
            yield
    finally:
        _inside.reset(token)
