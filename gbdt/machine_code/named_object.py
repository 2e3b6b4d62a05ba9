"""Finding a Python object by the name it is known by in another process: `module:qualified name`."""

from __future__ import annotations

import importlib
from typing import Any


def name_of(named: Any) -> str:
    """The name of a function or class."""
    return f"{named.__module__}:{named.__qualname__}"


def object_named(name: str) -> Any:
    """What `name_of` names."""
    module_name, _, qualified_name = name.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in qualified_name.split("."):
        found = getattr(found, part)
    return found
