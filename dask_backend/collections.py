"""Which kind of Dask collection a value is, without importing Dask where nobody has."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard


def is_array(value: object) -> TypeGuard[Any]:
    """A `dask.array.Array`."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


def is_frame(value: object) -> TypeGuard[Any]:
    """A `dask.dataframe.DataFrame`."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(value, module.DataFrame)


def is_series(value: object) -> TypeGuard[Any]:
    """A `dask.dataframe.Series`."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(value, module.Series)


def described(value: object) -> str:
    """What messages call the type of a value: `dask.dataframe.DataFrame` and the like."""
    return f"{type(value).__module__.partition('.')[0]} {type(value).__qualname__}"
