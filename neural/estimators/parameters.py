"""From the parameters of an estimator to the records that ranks need, with every value checked and named in errors."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dmlgbm.neural.gradient_channel import make_compressor
from dmlgbm.neural.optimisers import OPTIMISERS
from dmlgbm.neural.schedules import SCHEDULES
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.strategies import make_strategy

Initialiser = TypeVar("Initialiser", bound=Callable[..., None])


def stores_parameters(initialiser: Initialiser) -> Initialiser:
    """Make an `__init__` that only lists parameters and defaults store them as attributes, as scikit-learn wants it."""
    signature = inspect.signature(initialiser)

    @functools.wraps(initialiser)
    def initialise(self: Any, *arguments: Any, **options: Any) -> None:
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name != "self":
                setattr(self, name, value)

    return initialise  # type: ignore[return-value]


def checked_number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, below: float | None = None
) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    bounds = [
        (above is not None and not number > above, f"above {above}"),
        (at_least is not None and not number >= at_least, f"at least {at_least}"),
        (below is not None and not number < below, f"below {below}"),
        (number != number or number in (float("inf"), float("-inf")), "finite"),
    ]
    for broken, wanted in bounds:
        if broken:
            raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return number


def checked_integer(name: str, value: Any, at_least: int) -> int:
    """An integer of at least so much."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    return int(value)


def checked_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return str(value)


def checked_mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Options by name, or None for none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of options or None, got {value!r}")
    return dict(value)


def batch_rows(value: Any, n_rows: int) -> int:
    """The rows of a batch: what is asked for, if there are so many."""
    if value == "auto":
        return min(200, n_rows)
    size = checked_integer("batch_size", value, 1)
    if size > n_rows:
        raise ValueError(f"batch_size={size} is larger than the {n_rows} rows to train on: use at most {n_rows}")
    return size


def training_settings(estimator: Any, n_rows: int, seed: int) -> TrainingSettings:
    """The settings of a fit on `n_rows` rows (without those held out), from the estimator's parameters."""
    optimiser = checked_choice("optimiser", estimator.optimiser, tuple(OPTIMISERS))
    options = checked_mapping("optimiser_options", estimator.optimiser_options)
    try:
        OPTIMISERS[optimiser](**options)
    except TypeError as error:
        raise ValueError(f"optimiser_options do not fit optimiser={optimiser!r}: {error}") from None
    compression_options = checked_mapping("compression_options", estimator.compression_options)
    make_compressor(estimator.compression, compression_options)
    make_strategy(estimator.strategy, checked_mapping("strategy_options", estimator.strategy_options))
    return TrainingSettings(
        max_epochs=checked_integer("max_epochs", estimator.max_epochs, 1),
        batch_size=batch_rows(estimator.batch_size, n_rows),
        learning_rate=checked_number("learning_rate", estimator.learning_rate, above=0),
        optimiser=optimiser,
        optimiser_options=options,
        schedule=checked_choice("schedule", estimator.schedule, SCHEDULES),  # type: ignore[arg-type]
        warmup_steps=checked_integer("warmup_steps", estimator.warmup_steps, 0),
        sampling=checked_choice("sampling", estimator.sampling, ("reshuffle", "replacement")),  # type: ignore[arg-type]
        l2=checked_number("l2", estimator.l2, at_least=0),
        clip_norm=None if estimator.clip_norm is None else checked_number("clip_norm", estimator.clip_norm, above=0),
        compression=estimator.compression,
        compression_options=compression_options,
        patience=None if estimator.patience is None else checked_integer("patience", estimator.patience, 1),
        tolerance=checked_number("tolerance", estimator.tolerance, at_least=0),
        restore_best=bool(estimator.early_stopping),
        seed=seed,
        target_score=None if estimator.target_score is None else checked_number("target_score", estimator.target_score),
    )
