"""An estimator as it is at one moment: a prediction works on one, and so does a fit until all of it is done."""

from __future__ import annotations

from typing import TypeVar

Estimator = TypeVar("Estimator")


def snapshot(estimator: Estimator) -> Estimator:
    """A shallow copy, read at once: a fit in another thread must not mix with what is done with it."""
    own = object.__new__(type(estimator))
    vars(own).update(vars(estimator))
    return own
