"""Compiled steps are those of the papers, the same for an element wherever it lies, and announced before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgbm.neural import optimisers
from dmlgbm.neural.model import ParameterPart
from dmlgbm.neural.optimisers import LAMB, SGD, Adam, AdamW, Optimiser
from tests.reference.optimiser_steps import adam_steps, lamb_steps, momentum_steps

RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.1
# Odd lengths: registers hold 4, 8 or 16 elements, and the last ones are worked on one by one.
PARTS = (ParameterPart("weights", 0, 0, 37, (37,)), ParameterPart("biases", 0, 37, 43, (6,), decays=False))
SIZE = PARTS[-1].stop

MAKERS: dict[str, Callable[[], Optimiser]] = {
    "momentum": lambda: SGD(momentum=MOMENTUM),
    "nesterov": lambda: SGD(momentum=MOMENTUM, nesterov=True),
    "adam": Adam,
    "adamw": lambda: AdamW(weight_decay=DECAY),
    "lamb": lambda: LAMB(weight_decay=DECAY),
}
ORACLES: dict[str, Callable[[Any, Any], list[float]]] = {
    "momentum": lambda start, gradients: momentum_steps(start, gradients, RATE, MOMENTUM, nesterov=False),
    "nesterov": lambda start, gradients: momentum_steps(start, gradients, RATE, MOMENTUM, nesterov=True),
    "adam": lambda start, gradients: adam_steps(start, gradients, RATE, PARTS),
    "adamw": lambda start, gradients: adam_steps(start, gradients, RATE, PARTS, DECAY),
    "lamb": lambda start, gradients: lamb_steps(start, gradients, RATE, PARTS, DECAY),
}
every_optimiser = pytest.mark.parametrize("name", MAKERS)
every_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def start_and_gradients(dtype: Any, n_steps: int = 12) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(4)
    # Small, large and no slopes at all.
    scale = 10.0 ** rng.integers(-6, 3, SIZE) * (np.arange(SIZE) % 11 > 0)
    gradients = [(scale * rng.normal(size=SIZE)).astype(dtype) for _ in range(n_steps)]
    return rng.normal(size=SIZE).astype(dtype), gradients


def after_steps(optimiser: Optimiser, start: np.ndarray, gradients: list[np.ndarray], parts: Any) -> np.ndarray:
    parameters = start.copy()
    optimiser.begin(parameters, parts)
    for gradient in gradients:
        optimiser.step(parameters, gradient.copy(), RATE)
    return parameters


@every_optimiser
@every_type
def test_steps_are_those_of_the_formula(name: str, dtype: Any) -> None:
    start, gradients = start_and_gradients(dtype)
    found = after_steps(MAKERS[name](), start, gradients, PARTS)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype is np.float64 else 2e-5
    expected = np.array(ORACLES[name](start.tolist(), [gradient.tolist() for gradient in gradients]))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "lamb"])  # which needs lengths of whole layers
@every_type
def test_an_element_moves_alike_alone_and_among_others(name: str, dtype: Any) -> None:
    start, gradients = start_and_gradients(dtype)
    whole = after_steps(MAKERS[name](), start, gradients, PARTS)
    for position in range(SIZE):
        part = ParameterPart("one", 0, 0, 1, (1,), decays=position < PARTS[0].stop)
        one = slice(position, position + 1)
        alone = after_steps(MAKERS[name](), start[one], [gradient[one] for gradient in gradients], (part,))
        assert alone.tobytes() == whole[one].tobytes()


@every_optimiser
@every_type
def test_steps_go_on_from_saved_state_to_the_same_bits(name: str, dtype: Any) -> None:
    start, gradients = start_and_gradients(dtype)
    whole = after_steps(MAKERS[name](), start, gradients, PARTS)
    first = MAKERS[name]()
    parameters = after_steps(first, start, gradients[:5], PARTS)
    second = MAKERS[name]()
    second.begin(parameters, PARTS)
    second.restore(first.saved())
    for gradient in gradients[5:]:
        second.step(parameters, gradient.copy(), RATE)
    assert parameters.tobytes() == whole.tobytes()


@every_optimiser
@every_type
def test_what_is_announced_is_what_runs(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[tuple[Any, ...]] = []
    monkeypatch.setattr(optimisers, "prepare", lambda *arguments: announced.append(arguments))
    start, gradients = start_and_gradients(dtype, n_steps=1)
    optimiser = MAKERS[name]()
    optimiser.begin(start, PARTS)
    [(kernel, *arguments)] = announced
    kernel.for_types_of(*arguments)
    n_known = kernel.n_entries
    optimiser.step(start, gradients[0], RATE)
    assert kernel.n_entries == n_known


def test_a_rank_without_parameters_steps_too() -> None:
    for make in MAKERS.values():
        assert len(after_steps(make(), np.empty(0, np.float32), [np.empty(0, np.float32)], ())) == 0
