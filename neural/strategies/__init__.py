"""Strategies by name, each loaded when it is first asked for. `strategies/base.py` tells how to write one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dmlgbm.neural.strategies.base import Strategy

# name -> (module, class); a new strategy is a file in this folder and a line here.
_STRATEGIES: dict[str, tuple[str, str]] = {
    "allreduce": ("dmlgbm.neural.strategies.allreduce", "AllReduce"),
    "parameter_server": ("dmlgbm.neural.strategies.parameter_server", "ParameterServerStrategy"),
    "local_sgd": ("dmlgbm.neural.strategies.local_sgd", "LocalSGD"),
    "fedavg": ("dmlgbm.neural.strategies.fedavg", "FedAvg"),
    "fedprox": ("dmlgbm.neural.strategies.fedprox", "FedProx"),
    "gossip": ("dmlgbm.neural.strategies.gossip", "Gossip"),
    "admm": ("dmlgbm.neural.strategies.admm", "ADMM"),
    "ensemble_distil": ("dmlgbm.neural.strategies.ensemble_distil", "EnsembleDistil"),
    "pipeline": ("dmlgbm.neural.strategies.pipeline", "Pipeline"),
    "tensor": ("dmlgbm.neural.strategies.tensor", "Tensor"),
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
