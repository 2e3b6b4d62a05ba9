"""The command that starts another Python process: it finds the modules of this one, and runs no stranger's.

A new interpreter looks into the current folder before all others, so that a file there with the name of a library, left
by accident or by somebody else, would be run in its place. Here it starts without that folder (`-P`) and is told where
to look: the path of this process, but with the user's own folders last. Modules that this process has already
imported from those folders are found there all the same, even where a library has the same name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_PACKAGES = Path(__file__).parents[3]


def _current_folder() -> str:
    """Also when it has been deleted, where it holds no modules."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return os.sep


# What an empty entry of the path means to this process must not change with the folder it goes to.
_FOLDER_AT_THE_START = _current_folder()

_FIND_MODULES = """\
import json, sys
from importlib.machinery import PathFinder
sys.path[:], homes = json.loads(sys.argv.pop(1))
class Homes:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [homes[name]]) if name in homes else None
sys.meta_path.insert(0, Homes)
"""


def python_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a program, given as text, with arguments in `sys.argv[1:]`."""
    places = json.dumps([module_paths(), module_homes()])
    return [sys.executable, "-P", "-c", _FIND_MODULES + program, places, *arguments]


def python_environment() -> dict[str, str]:
    """The environment for such a process: PYTHONPATH, which it reads before its program, without the current folder."""
    environment = dict(os.environ)
    entries = environment.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if Path(entry).is_absolute() and entry != _current_folder()]
    return environment | ({"PYTHONPATH": os.pathsep.join(kept)} if kept else {})


def module_paths() -> list[str]:
    """`sys.path` of this process with the user's own folders behind all libraries."""
    own = _own_folders()
    paths = [str(Path(_FOLDER_AT_THE_START, path)) for path in sys.path]
    return [path for path in paths if path not in own] + [path for path in paths if path in own]


def module_homes() -> dict[str, str]:
    """Modules that a new process must find in a folder of the user, and in no other: those that this one has there."""
    own = _own_folders()
    homes = {name: home for name, module in _top_modules() if (home := _home_of(module)) in own}
    if str(_PACKAGES) in own:
        # A checkout: what this process has not imported yet belongs to the same version as what it has.
        homes |= {folder.parent.name: str(_PACKAGES) for folder in _PACKAGES.glob("*/__init__.py")}
    return {name: home for name, home in homes.items() if name not in sys.stdlib_module_names}


def _own_folders() -> set[str]:
    """Where the user's own modules are: the folder of the script, the current one, and the one at the start."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = {_FOLDER_AT_THE_START, _current_folder()}
    return folders if script is None else folders | {str(Path(script).absolute().parent)}


def _top_modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if "." not in name and name != "__main__" and isinstance(module, ModuleType):
            yield name, module


def _home_of(module: ModuleType) -> str | None:
    """The folder on the path that a module was found in."""
    spec = getattr(module, "__spec__", None)
    folders = list(getattr(spec, "submodule_search_locations", None) or ())
    place = folders[0] if folders else getattr(spec, "origin", None)
    return str(Path(place).absolute().parent) if isinstance(place, str) else None
