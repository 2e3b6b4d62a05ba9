"""The space of an Optuna search, in whatever form it was given: what a study is asked for, and what a trial means.

Optuna's own distributions, lists of choices and scipy's distributions, as RandomizedSearchCV takes them, may stand side
by side. What Optuna has no distribution for is asked for in another form (the position in a list, a quantile)
and decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

Space: TypeAlias = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]

_STORED_AS_THEY_ARE = (type(None), bool, int, float, str)
# The ends of the quantiles that are asked for: those of 0 and 1 may be infinite.
_SMALLEST_QUANTILE = 1e-9


class TrialSpace:
    """Makes trials of a study, and parameters of trials."""

    def __init__(self, given: Space) -> None:
        self._function = given if callable(given) else None
        self._distributions: dict[str, Any] = {}
        self._decoders: dict[str, Callable[[Any], Any]] = {}
        if callable(given):
            return
        if not isinstance(given, Mapping):
            raise TypeError(
                "param_distributions must be a dict of names and distributions, or a function of a trial, got a "
                f"{type(given).__name__}."
            )
        for name, value in given.items():
            self._add(name, value)

    def ask(self, study: Any) -> Any:
        """A new trial; `parameters_of` asks it for the rest where the space is a function."""
        return study.ask() if self._function is not None else study.ask(dict(self._distributions))

    def parameters_of(self, trial: Any) -> dict[str, Any]:
        """What the estimator is given."""
        if self._function is not None:
            return dict(self._function(trial))
        return {name: self._decoded(name, trial.params[name]) for name in self._distributions}

    def parameters_of_earlier(self, trial: Any) -> dict[str, Any] | None:
        """The same for a trial of an earlier search; None if it does not belong to this space."""
        from optuna.trial import FixedTrial

        try:
            if self._function is not None:
                return dict(self._function(FixedTrial(trial.params)))
            return self.parameters_of(trial)
        except Exception:  # noqa: BLE001 - a function of the user's that asks for something else by now
            return None

    def _decoded(self, name: str, value: Any) -> Any:
        return self._decoders[name](value) if name in self._decoders else value

    def _add(self, name: str, value: Any) -> None:
        from optuna import distributions

        if isinstance(value, distributions.BaseDistribution):
            self._distributions[name] = value
        elif hasattr(value, "rvs"):
            self._add_scipy(name, value)
        elif isinstance(value, list | tuple | range | np.ndarray) and len(value):
            choices = [each.item() if isinstance(each, np.generic) else each for each in value]
            if all(isinstance(each, _STORED_AS_THEY_ARE) for each in choices):
                self._distributions[name] = distributions.CategoricalDistribution(choices)
            else:
                self._distributions[name] = distributions.CategoricalDistribution(range(len(choices)))
                self._decoders[name] = choices.__getitem__
        else:
            raise TypeError(
                f"param_distributions[{name!r}] must be an optuna or scipy distribution, or a list of choices, got "
                f"{value!r:.80} of type {type(value).__name__}."
            )

    def _add_scipy(self, name: str, value: Any) -> None:
        from optuna.distributions import FloatDistribution, IntDistribution

        kind = getattr(getattr(value, "dist", None), "name", "")
        if kind == "randint":
            low, high = value.support()
            self._distributions[name] = IntDistribution(int(low), int(high))
        elif kind in ("uniform", "loguniform", "reciprocal"):
            low, high = value.support()
            self._distributions[name] = FloatDistribution(float(low), float(high), log=kind != "uniform")
        elif hasattr(value, "ppf"):
            self._distributions[name] = FloatDistribution(_SMALLEST_QUANTILE, 1 - _SMALLEST_QUANTILE)
            self._decoders[name] = lambda quantile: value.ppf(quantile).item()
        else:
            raise TypeError(
                f"param_distributions[{name!r}] is a {type(value).__name__} without a method ppf, which turns the "
                "quantiles that Optuna chooses into values: use a distribution of scipy.stats or of optuna."
            )
