"""What holds for all kernels, read off their sources: few arguments, and no name that means two numbers."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import dmlgbm
from dmlgbm.gbdt.machine_code.kernel import Kernel

MOST_ARGUMENTS = 10
ROOMS = ("gbdt", "collectives", "neural")
MARKS = {"kernel", "inlined"}

PACKAGE = Path(dmlgbm.__file__).parent
SOURCES = [source for room in ROOMS for source in sorted((PACKAGE / room / "kernels").glob("*.py"))]


def kernels_of(source: Path) -> Iterator[ast.FunctionDef]:
    for statement in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.FunctionDef):
            marks = {mark.id for mark in statement.decorator_list if isinstance(mark, ast.Name)}
            if marks & MARKS:
                yield statement


def constants_of(source: Path) -> dict[str, object]:
    """The upper-case names that a module defines itself, if they stand for a number or a record's fields."""
    assigned = [
        name.id
        for statement in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and name.id.isupper()
    ]
    module = import_module(".".join(("dmlgbm", *source.relative_to(PACKAGE).with_suffix("").parts)))
    values = {name: getattr(module, name) for name in assigned}
    # Whether something is available on this machine is a question to one module.
    kinds = (int, float, np.number, np.dtype)
    return {name: value for name, value in values.items() if isinstance(value, kinds) and not isinstance(value, bool)}


def test_there_are_kernels_in_every_room() -> None:
    rooms = {source.relative_to(PACKAGE).parts[0] for source in SOURCES for _ in kernels_of(source)}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: "/".join(source.parts[-3:]))
def test_a_kernel_takes_records_instead_of_more_than_ten_arguments(source: Path) -> None:
    counts = {
        function.name: sum(map(len, (function.args.posonlyargs, function.args.args, function.args.kwonlyargs)))
        for function in kernels_of(source)
    }
    assert {name: count for name, count in counts.items() if count > MOST_ARGUMENTS} == {}


def test_a_constant_has_the_same_value_in_all_kernel_modules() -> None:
    owners: dict[str, dict[str, object]] = defaultdict(dict)
    for source in SOURCES:
        for name, value in constants_of(source).items():
            owners[name]["/".join(source.parts[-3:])] = value
    different = {name: values for name, values in owners.items() if len(set(values.values())) > 1}
    assert different == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: "/".join(source.parts[-3:]))
def test_a_kernel_returns_what_object_files_can(source: Path) -> None:
    """Any other kernel is left to numba in every process, with a warning and a second of start-up time."""
    from dmlgbm.gbdt.machine_code.numba_functions import return_type

    module = import_module(".".join(("dmlgbm", *source.relative_to(PACKAGE).with_suffix("").parts)))
    kernels = [value for value in vars(module).values() if isinstance(value, Kernel) and not value.is_inlined]
    for kernel in kernels:
        return_type(kernel)
