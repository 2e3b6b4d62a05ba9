"""Searches written for spark-sklearn: `GridSearchCV(sc, estimator, param_grid)` means `backend=sc`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

Init = TypeVar("Init", bound=Callable[..., None])


def takes_context_first(init: Init) -> Init:
    """An `__init__` that also takes Spark's context, or a session, before the estimator.

    scikit-learn reads the parameters of a class from the signature, which stays that of `init`.
    """

    @functools.wraps(init)
    def with_context(self: Any, *given: Any, **options: Any) -> None:
        if given and type(given[0]).__module__.partition(".")[0] == "pyspark":
            context, *given_after = given
            init(self, *given_after, **{"backend": context, **options})
        else:
            init(self, *given, **options)

    return cast("Init", with_context)
