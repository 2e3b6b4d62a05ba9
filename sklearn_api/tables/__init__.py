"""Whatever the user passes as X, as the engine's `Table`: plain numpy columns, shared with the source where possible.

The one idea: each framework has one file that knows how to look at its columns without copying them, and all of
them meet in the same few column records, so equal data gives equal columns whoever carried it:

* numbers keep their own width (never a float64 copy of the table; float16 is widened to float32);
* dates, timestamps and durations are int64 nanoseconds (UTC, since 1970), saturating outside the years 1677-2262;
* strings and category types are categorical: a category or Enum type keeps its order and its unused categories,
  plain strings (and polars Categoricals, whose order is an accident of the process) are sorted;
* None, NaN, NA, NaT and null are missing.
"""

from dmlgbm.sklearn_api.tables.alignment import reordered
from dmlgbm.sklearn_api.tables.categories import as_categorical
from dmlgbm.sklearn_api.tables.conversion import listed_categories, table_from

__all__ = ["as_categorical", "listed_categories", "reordered", "table_from"]
