"""Strategies by name, each loaded when it is first asked for. `neural.strategies.base` tells how to write one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from neural.strategies.base import Strategy

# name -> (module, class); a new strategy is a file in this folder and a line here.
_STRATEGIES: dict[str, tuple[str, str]] = {
    "allreduce": ("neural.strategies.allreduce", "AllReduce"),
    "parameter_server": ("neural.strategies.parameter_server", "ParameterServerStrategy"),
    "local_sgd": ("neural.strategies.local_sgd", "LocalSGD"),
    "fedavg": ("neural.strategies.fedavg", "FedAvg"),
    "fedprox": ("neural.strategies.fedprox", "FedProx"),
    "gossip": ("neural.strategies.gossip", "Gossip"),
    "admm": ("neural.strategies.admm", "ADMM"),
    "ensemble_distil": ("neural.strategies.ensemble_distil", "EnsembleDistil"),
    "pipeline": ("neural.strategies.pipeline", "Pipeline"),
    "tensor": ("neural.strategies.tensor", "Tensor"),
}


def strategy_names() -> list[str]:
    """What `strategy=` takes."""
    return list(_STRATEGIES)


def make_strategy(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy with its options; ValueError names what is unknown or wrong and what there is."""
    if name not in _STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, got {name!r}")
    module, class_name = _STRATEGIES[name]
    kind: type[Strategy] = getattr(importlib.import_module(module), class_name)
    given = dict(options or {})
    unknown = [option for option in given if option not in kind.option_names()]
    if unknown:
        known = ", ".join(kind.option_names()) or "none"
        raise ValueError(f"strategy {name!r} has no option {unknown[0]!r}; its options are: {known}")
    return kind(**given)


__all__ = ["Strategy", "make_strategy", "strategy_names"]
