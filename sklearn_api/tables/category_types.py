"""Which columns are categorical because the user said so, and not because they hold text."""

from __future__ import annotations

from typing import Any

from dmlgbm.sklearn_api.tables.names import CategoricalFeature, categorical_positions


def meant_categories(
    X: Any, categorical_feature: CategoricalFeature, names: tuple[str, ...] | None, n_features: int
) -> frozenset[int]:
    """The columns of a category type (of pandas, polars or Arrow) and those that `categorical_feature` lists."""
    return _typed(X) | categorical_positions(categorical_feature, names, n_features, "X")


def _typed(X: Any) -> frozenset[int]:
    types: Any = getattr(X, "dtypes", None)
    if types is None:
        types = getattr(getattr(X, "schema", None), "types", ())
    names = (str(each).lower() for each in types)
    return frozenset(p for p, name in enumerate(names) if name.startswith(("category", "categorical", "enum", "dict")))
