"""Which tables there are: those of the grid, a quick choice of them, and those that differ in one number only."""

from __future__ import annotations

from benchmarks.generated_tables import GeneratedTable

GENERATED_GRID: dict[str, GeneratedTable] = {
    "small_5": GeneratedTable(10_000, 5),
    "small_100_5_classes": GeneratedTable(10_000, 100, classes=5, values=16),
    "regression_37k": GeneratedTable(37_000, 9, classes=0),
    "classes_20": GeneratedTable(20_000, 20, classes=20),
    "counts_9_classes": GeneratedTable(50_000, 93, classes=9, form="counts"),
    "counts_300": GeneratedTable(30_000, 300, form="counts"),
    "flags_100": GeneratedTable(50_000, 100, values=2),
    "few_values": GeneratedTable(200_000, 20, values=12),
    "few_values_500k": GeneratedTable(500_000, 5, values=12),
    "one_hot": GeneratedTable(100_000, 60, form="one_hot"),
    "mostly_zeros": GeneratedTable(60_000, 200, classes=0, values=64, zeros=0.9),
    "half_zeros": GeneratedTable(60_000, 40, classes=4, zeros=0.5),
    "binary_116k": GeneratedTable(116_000, 74, values=100, zeros=0.2),
    "continuous_200k": GeneratedTable(200_000, 30),
    "values_255": GeneratedTable(200_000, 12, classes=3, values=255),
    "tall_1m": GeneratedTable(1_000_000, 6, classes=0),
    "wide_500": GeneratedTable(20_000, 500, classes=0, values=32),
    "wide_1000": GeneratedTable(10_000, 1_000),
}
# Those of the data directory whose fits take seconds; the others are raced by `python -m benchmarks`.
SHARED_TABLES = ("california_housing", "adult", "w8a", "nycflights13_joined", "flights3m")
GRID_TABLES = (*GENERATED_GRID, *SHARED_TABLES)
QUICK_TABLES = (
    "small_100_5_classes",
    "regression_37k",
    "counts_300",
    "one_hot",
    "binary_116k",
    "tall_1m",
    "california_housing",
)

# Tables that differ in one number each, to see how time grows with it.
_ROWS = {f"rows_{rows}": GeneratedTable(rows, 20) for rows in (10_000, 30_000, 100_000, 300_000, 1_000_000)}
_COLUMNS = {f"columns_{columns}": GeneratedTable(30_000, columns) for columns in (5, 20, 80, 320)}
_CLASSES = {f"classes_{classes}_of_20k": GeneratedTable(20_000, 20, classes) for classes in (2, 5, 10, 20)}
GROWING_TABLES = {**_ROWS, **_COLUMNS, **_CLASSES}

GENERATED_TABLES = {**GENERATED_GRID, **GROWING_TABLES}
