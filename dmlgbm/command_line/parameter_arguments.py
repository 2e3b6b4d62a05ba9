"""Estimator parameters from the command line: `-p name=value`, and a JSON file of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def parameter(text: str) -> tuple[str, Any]:
    """`name=value`; the value is JSON (a number, true, [1, 2]), a Python constant, or else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    if value in _PYTHON_WORDS:
        return name, _PYTHON_WORDS[value]
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parameters_from(path: str | None, given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The parameters of the file, then those of `-p`, which win."""
    parameters = {} if path is None else _from_file(path)
    return {**parameters, **dict(given)}


def _from_file(path: str) -> dict[str, Any]:
    try:
        parameters = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} must hold one JSON object of parameter names and values.")
    return parameters
