"""Records as options of a command line: one option for each field, under its own name and default."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def add_record_arguments(parser: argparse.ArgumentParser, record: type[DataclassInstance]) -> None:
    for field in dataclasses.fields(record):
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")


def record_from_arguments(arguments: argparse.Namespace, record: type[Record]) -> Record:
    return record(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(record)})


def record_to_arguments(record: DataclassInstance) -> list[str]:
    """The command line that gives another process the same record."""
    return [_to_argument(name.replace("_", "-"), value) for name, value in dataclasses.asdict(record).items()]


def _to_argument(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"
