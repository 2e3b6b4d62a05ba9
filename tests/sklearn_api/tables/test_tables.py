"""Tables from every framework: equal data gives equal columns, memory is shared, bad input is named."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from dmlgbm.sklearn_api.tables import as_categorical, reordered, table_from

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
sparse = pytest.importorskip("scipy.sparse")

DAY = 86_400 * 10**9
NAN = float("nan")


def readable(column: Column) -> list[Any]:
    """The rows of a column as Python values, None where missing."""
    if isinstance(column, CategoricalColumn):
        assert column.codes.dtype.kind == "i"
        return [None if code < 0 else column.categories[code] for code in column.codes]
    if isinstance(column, SparseColumn):
        dense = np.zeros(column.n_rows, dtype=column.values.dtype)
        dense[column.rows] = column.values
        column = NumericColumn(dense)
    assert column.values.dtype.kind in "biuf"
    assert column.values.dtype.isnative
    missing = np.isnan(column.values) if column.values.dtype.kind == "f" else np.zeros(len(column), dtype=bool)
    if column.missing is not None:
        missing = missing | column.missing
    return [None if absent else value.item() for value, absent in zip(column.values, missing, strict=True)]


def only_column(X: Any, **options: Any) -> Column:
    table = table_from(X, **options)
    assert table.n_features == 1
    assert table.n_rows == len(table.columns[0])
    return table.columns[0]


def pandas_column(values: Any, **options: Any) -> Any:
    return pd.DataFrame({"a": pd.Series(values, **options)})


def polars_column(values: Any, dtype: Any = None) -> Any:
    return pl.DataFrame({"a": pl.Series(values, dtype=dtype, strict=False)})


def arrow_column(values: Any, arrow_type: Any = None) -> Any:
    return pa.table({"a": values if isinstance(values, pa.Array) else pa.array(values, arrow_type)})


def object_array(values: list[Any]) -> Any:
    return np.array([[value] for value in values], dtype=object)


def chunked(values: list[Any], arrow_type: Any) -> Any:
    half = len(values) // 2
    return pa.table({"a": pa.chunked_array([values[:half], [], values[half:]], type=arrow_type)})


@dataclass(frozen=True)
class Case:
    """One column, as every framework writes it, and what it must read as."""

    name: str
    expected: list[Any]
    sources: dict[str, Callable[[], Any]]
    categories: tuple[Any, ...] | None = None


def number_case(
    numpy_name: str, values: list[Any], nullable: str, polars_type: Any, arrow_type: Any, expected: list[Any]
) -> Case:
    """Numbers with a null: as masked, nullable, Arrow-backed and null-carrying columns."""
    filled = [0 if value is None else value for value in values]
    mask = [[value is None] for value in values]
    return Case(
        f"{numpy_name} with nulls",
        expected,
        {
            "numpy masked": lambda: np.ma.MaskedArray(np.array(filled, numpy_name)[:, None], mask=mask),
            "numpy object": lambda: object_array(values),
            "list": lambda: [[value] for value in values],
            "pandas nullable": lambda: pandas_column(values, dtype=nullable),
            "pandas object": lambda: pandas_column(values, dtype=object),
            "pandas arrow": lambda: pandas_column(values, dtype=pd.ArrowDtype(arrow_type)),
            "polars": lambda: polars_column(values, polars_type),
            "arrow": lambda: arrow_column(values, arrow_type),
            "arrow sliced": lambda: arrow_column([None, *values], arrow_type).slice(1),
            "arrow chunked": lambda: chunked(values, arrow_type),
            "arrow batch": lambda: arrow_column(values, arrow_type).to_batches()[0],
        },
    )


NUMBER_CASES = [
    number_case(
        name, [3, None, 1, 0], name.replace("i", "I").replace("uI", "UI"), polars_type, arrow_type, [3, None, 1, 0]
    )
    for name, polars_type, arrow_type in (
        ("int8", pl.Int8, pa.int8()),
        ("int16", pl.Int16, pa.int16()),
        ("int32", pl.Int32, pa.int32()),
        ("int64", pl.Int64, pa.int64()),
        ("uint8", pl.UInt8, pa.uint8()),
        ("uint16", pl.UInt16, pa.uint16()),
        ("uint32", pl.UInt32, pa.uint32()),
        ("uint64", pl.UInt64, pa.uint64()),
    )
] + [
    number_case("float32", [1.5, None, NAN, np.inf], "Float32", pl.Float32, pa.float32(), [1.5, None, None, np.inf]),
    number_case("float64", [0.1, None, NAN, -np.inf], "Float64", pl.Float64, pa.float64(), [0.1, None, None, -np.inf]),
    number_case("bool", [True, None, False], "boolean", pl.Boolean, pa.bool_(), [True, None, False]),
]

WORDS = ["pear", "apple", None, "été", "pear"]
SORTED_WORDS = ("apple", "pear", "été")
SIZES = ["small", "large", None, "small"]
SIZE_ORDER = ("small", "medium", "large")
DAYS = [datetime.date(2020, 2, 29), None, datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)]
DAY_NUMBERS = [18_321 * DAY, None, -DAY, 0]
DELTAS = [datetime.timedelta(days=1), None, datetime.timedelta(microseconds=-1)]
OPEN_END = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), datetime.datetime(1970, 1, 1)]


def timestamps(unit: str) -> Any:
    return np.array(DAYS, dtype="M8[D]").astype(f"M8[{unit}]")


def utc_timestamps() -> Any:
    return pd.Series(timestamps("us")).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")


def size_dictionary() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 0], pa.uint8()), list(SIZE_ORDER))


OTHER_CASES = [
    Case(
        "strings",
        WORDS,
        {
            "numpy object": lambda: object_array(WORDS),
            "numpy object NaN": lambda: object_array([NAN if word is None else word for word in WORDS]),
            "numpy object NA": lambda: object_array([pd.NA if word is None else word for word in WORDS]),
            "list": lambda: [[word] for word in WORDS],
            "pandas str": lambda: pandas_column(WORDS),
            "pandas object": lambda: pandas_column(WORDS, dtype=object),
            "pandas string python": lambda: pandas_column(WORDS, dtype=pd.StringDtype("python")),
            "pandas string pyarrow": lambda: pandas_column(WORDS, dtype=pd.StringDtype("pyarrow")),
            "pandas arrow": lambda: pandas_column(WORDS, dtype=pd.ArrowDtype(pa.string())),
            "pandas category": lambda: pandas_column(WORDS, dtype="category"),
            "polars": lambda: polars_column(WORDS),
            "polars chunked": lambda: pl.concat([polars_column(WORDS[:2]), polars_column(WORDS[2:])]),
            "polars Categorical": lambda: polars_column(WORDS, pl.Categorical),
            "polars Object": lambda: polars_column(WORDS, pl.Object),
            "arrow": lambda: arrow_column(WORDS),
            "arrow large": lambda: arrow_column(WORDS, pa.large_string()),
            "arrow view": lambda: arrow_column(WORDS, pa.string_view()),
            "arrow chunked": lambda: chunked(WORDS, pa.string()),
            "arrow sliced": lambda: arrow_column(["zebra", *WORDS]).slice(1),
        },
        categories=SORTED_WORDS,
    ),
    Case(
        "ordered categories, one unused",
        SIZES,
        {
            "pandas ordered": lambda: pandas_column(pd.Categorical(SIZES, SIZE_ORDER, ordered=True)),
            "pandas unordered": lambda: pandas_column(pd.Categorical(SIZES, SIZE_ORDER)),
            "pandas arrow": lambda: pandas_column(size_dictionary(), dtype=pd.ArrowDtype(size_dictionary().type)),
            "polars": lambda: polars_column(SIZES, pl.Enum(SIZE_ORDER)),
            "arrow": lambda: arrow_column(size_dictionary()),
            "arrow from pandas": lambda: pa.Table.from_pandas(pandas_column(pd.Categorical(SIZES, SIZE_ORDER))),
            "arrow from polars": lambda: polars_column(SIZES, pl.Enum(SIZE_ORDER)).to_arrow(),
        },
        categories=SIZE_ORDER,
    ),
    Case(
        "dates",
        DAY_NUMBERS,
        {
            **{
                f"numpy {unit}": lambda unit=unit: timestamps(unit)[:, None]
                for unit in ("D", "h", "s", "ms", "us", "ns")
            },
            "numpy multiple": lambda: timestamps("2h")[:, None],
            "numpy big-endian": lambda: timestamps("s").astype(">M8[s]")[:, None],
            "numpy object": lambda: object_array(DAYS),
            **{f"pandas {unit}": lambda unit=unit: pandas_column(timestamps(unit)) for unit in ("s", "ms", "us", "ns")},
            "pandas time zone": lambda: pandas_column(utc_timestamps()),
            "pandas object": lambda: pandas_column(DAYS, dtype=object),
            "pandas aware objects": lambda: pandas_column(utc_timestamps().astype(object)),
            "pandas arrow": lambda: pandas_column(DAYS, dtype=pd.ArrowDtype(pa.date32())),
            "polars Date": lambda: polars_column(DAYS, pl.Date),
            **{
                f"polars {unit}": lambda unit=unit: polars_column(DAYS, pl.Date).cast(pl.Datetime(unit))
                for unit in ("ms", "us", "ns")
            },
            "polars time zone": lambda: pl.from_pandas(pandas_column(utc_timestamps())),
            "arrow date32": lambda: arrow_column(DAYS, pa.date32()),
            "arrow date64": lambda: arrow_column(DAYS, pa.date64()),
            **{f"arrow {unit}": lambda unit=unit: arrow_column(timestamps(unit)) for unit in ("s", "us", "ns")},
            "arrow time zone": lambda: pa.Table.from_pandas(pandas_column(utc_timestamps())),
        },
    ),
    Case(
        "durations",
        [DAY, None, -1000],
        {
            "numpy": lambda: np.array(DELTAS, dtype="m8[us]")[:, None],
            "numpy picoseconds": lambda: np.array(DELTAS, dtype="m8[us]").astype("m8[ps]")[:, None],
            "numpy object": lambda: object_array(DELTAS),
            "pandas": lambda: pandas_column(DELTAS),
            "pandas object": lambda: pandas_column(DELTAS, dtype=object),
            "polars": lambda: polars_column(DELTAS),
            "arrow": lambda: arrow_column(DELTAS),
            "arrow ns": lambda: arrow_column(DELTAS, pa.duration("ns")),
        },
    ),
    Case(
        "instants beyond nanoseconds keep their order",
        [(2**63 - 1) // 1000 * 1000, -((2**63 - 1) // 1000 * 1000), 0],
        {
            "numpy": lambda: np.array(OPEN_END, dtype="M8[us]")[:, None],
            "numpy object": lambda: object_array(OPEN_END),
            "pandas": lambda: pandas_column(np.array(OPEN_END, dtype="M8[us]")),
            "polars": lambda: polars_column(OPEN_END),
            "arrow": lambda: arrow_column(OPEN_END),
        },
    ),
    Case(
        "times of day",
        [1_000_000_000, None],
        {
            "polars": lambda: polars_column([datetime.time(0, 0, 1), None]),
            "arrow": lambda: arrow_column([datetime.time(0, 0, 1), None]),
            "arrow seconds": lambda: arrow_column([datetime.time(0, 0, 1), None], pa.time32("s")),
        },
    ),
    Case(
        "decimals",
        [1.5, None, -2.0],
        {
            "numpy object": lambda: object_array([Decimal("1.5"), None, Decimal(-2)]),
            "pandas object": lambda: pandas_column([Decimal("1.5"), None, Decimal(-2)], dtype=object),
            "polars": lambda: polars_column([Decimal("1.5"), None, Decimal(-2)]),
            "arrow": lambda: arrow_column([Decimal("1.5"), None, Decimal(-2)]),
            "arrow chunked": lambda: chunked([Decimal("1.5"), None, Decimal(-2)], pa.decimal128(5, 2)),
        },
    ),
    Case(
        "nothing but missing",
        [None, None],
        {
            "numpy object": lambda: object_array([None, NAN]),
            "list": lambda: [[None], [None]],
            "pandas object": lambda: pandas_column([None, pd.NA], dtype=object),
            "pandas float": lambda: pandas_column([NAN, NAN]),
            "polars": lambda: polars_column([None, None], pl.Null),
            "arrow": lambda: arrow_column([None, None], pa.null()),
        },
    ),
    Case(
        "zeros and a NaN",
        [0.0, 2.5, None, 0.0],
        {
            "numpy": lambda: np.array([[0, 2.5, NAN, 0]]).T,
            "csr": lambda: sparse.csr_matrix(np.array([[0, 2.5, NAN, 0]]).T),
            "csc": lambda: sparse.csc_array(np.array([[0, 2.5, NAN, 0]]).T),
            "coo, 2.5 in two parts": lambda: sparse.coo_array(([NAN, 1, 1.5], ([2, 1, 1], [0, 0, 0])), shape=(4, 1)),
            "lil": lambda: sparse.lil_matrix(np.array([[0, 2.5, NAN, 0]]).T),
            "pandas Sparse around 0": lambda: pandas_column([0, 2.5, NAN, 0], dtype=pd.SparseDtype(float, 0)),
            "pandas Sparse around NaN": lambda: pandas_column([0, 2.5, NAN, 0], dtype=pd.SparseDtype(float, NAN)),
        },
    ),
]
SOURCES = [
    pytest.param(case, build, id=f"{case.name}: {source}")
    for case in NUMBER_CASES + OTHER_CASES
    for source, build in case.sources.items()
]


@pytest.mark.parametrize(("case", "build"), SOURCES)
def test_frameworks_agree(case: Case, build: Callable[[], Any]) -> None:
    column = only_column(build())
    assert readable(column) == case.expected
    assert getattr(column, "categories", None) == case.categories


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">f8", ">i4"]
)
@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "read-only"])
def test_numpy_numbers_of_any_type_and_layout(dtype: str, layout: str) -> None:
    values = np.arange(24).reshape(6, 4).astype(dtype)
    X = {
        "C": values,
        "F": np.asfortranarray(values),
        "strided": np.repeat(np.repeat(values, 2, axis=0), 3, axis=1)[::2, ::3],
        "reversed": values[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": values.copy(),
    }[layout]
    X.flags.writeable = layout != "read-only"
    table = table_from(X)
    assert table.names is None
    assert (table.n_rows, table.n_features) == (6, 4)
    for feature, column in enumerate(table.columns):
        assert readable(column) == values[:, feature].tolist()
        same_type = np.dtype(dtype).isnative and dtype not in ("f2", "g")
        assert np.shares_memory(column.values, X) == same_type


def test_float16_is_widened_no_further_than_float32() -> None:
    assert only_column(np.ones((3, 1), dtype=np.float16)).values.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
def test_frames_of_numbers_are_shared(dtype: str) -> None:
    values = np.ones((5, 3), dtype=dtype)
    one_block = pd.DataFrame(values, columns=list("abc"), copy=False)
    assert all(np.shares_memory(column.values, values) for column in table_from(one_block).columns)
    several_blocks = one_block.assign(d="text")
    for feature, column in enumerate(table_from(several_blocks).columns[:3]):
        assert np.shares_memory(column.values, several_blocks.iloc[:, feature].to_numpy())
    if dtype == "bool":
        return  # polars and Arrow pack eight of them into a byte
    frame = pl.DataFrame({"a": values[:, 0].copy()})
    assert np.shares_memory(only_column(frame).values, frame["a"].to_numpy())
    array = pa.array([1, None, 3], pa.float32() if dtype == "float32" else pa.int64())
    buffer = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    assert np.shares_memory(only_column(arrow_column(array)).values, buffer)


def test_nullable_pandas_column_without_nulls_and_category_codes_are_shared() -> None:
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype="Int32"), "b": pd.Categorical(["x", "y"])})
    numbers, categories = table_from(frame).columns
    assert np.shares_memory(numbers.values, frame["a"].array.to_numpy(dtype="int32"))
    assert np.shares_memory(categories.codes, frame["b"].array.codes)


@pytest.mark.parametrize("pieces", [[slice(0, 2), slice(3, 6)], [slice(3, 6), slice(0, 3)]])
def test_frames_joined_from_views_of_one_array_read_correctly(pieces: list[slice]) -> None:
    values = np.arange(24.0).reshape(4, 6)
    whole = pd.DataFrame(values, columns=list("abcdef"))
    joined = pd.concat([whole.iloc[:, piece] for piece in pieces], axis=1)
    for feature, column in enumerate(table_from(joined).columns):
        assert readable(column) == joined.iloc[:, feature].tolist()


def test_many_blocks_of_one_type_are_not_gathered_into_a_copy() -> None:
    frame = pd.DataFrame(np.ones((4, 3)), columns=list("abc"))
    frame["d"] = 2.0
    for feature, column in enumerate(table_from(frame).columns):
        assert np.shares_memory(column.values, frame.iloc[:, feature].to_numpy())


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.coo_array])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_sparse_matrices_stay_sparse(container: Any, dtype: str) -> None:
    dense = (np.arange(30).reshape(6, 5) % 4 == 0).astype(dtype)
    table = table_from(container(dense))
    assert (table.n_rows, table.n_features, table.names) == (6, 5, None)
    for feature, column in enumerate(table.columns):
        assert isinstance(column, SparseColumn)
        assert column.values.dtype == dtype
        assert column.rows.tolist() == np.flatnonzero(dense[:, feature]).tolist()
        assert readable(column) == dense[:, feature].tolist()


def test_csc_is_shared_and_an_unsorted_one_is_left_as_it_was() -> None:
    tidy = sparse.csc_array(np.eye(3))
    assert np.shares_memory(table_from(tidy).columns[2].values, tidy.data)
    untidy = sparse.csc_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(3, 1))
    column = only_column(untidy)
    assert column.rows.tolist() == [0, 2]
    assert column.values.tolist() == [2.0, 5.0]
    assert untidy.indices.tolist() == [2, 0, 2]
    assert untidy.data.tolist() == [1.0, 2.0, 4.0]


def test_numeric_strings_are_text() -> None:
    for X in ([["10"], ["9"]], np.array([["10"], ["9"]]), np.array([["10"], ["9"]], dtype=object)):
        assert only_column(X).categories == ("10", "9")
    strings = np.array([["10"], ["9"]], dtype=np.dtypes.StringDType())
    assert only_column(strings).categories == ("10", "9")


def test_numbers_beside_strings_in_a_list_stay_numbers() -> None:
    numbers, words = table_from([[1, "b"], [2.5, "a"]]).columns
    assert readable(numbers) == [1.0, 2.5]
    assert readable(words) == ["b", "a"]


def test_an_array_like_object_is_read_through_numpy() -> None:
    class Wrapped:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([[1.0], [2.0]])

    assert readable(only_column(Wrapped())) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ([3, 1, 2], (3, 1, 2)),
        ([0.5, -1.0], (0.5, -1.0)),
        ([True, False], (True, False)),
        (pd.IntervalIndex.from_breaks([0, 1, 2]), ("(0, 1]", "(1, 2]")),
    ],
)
def test_categories_of_other_types(categories: Any, expected: tuple[Any, ...]) -> None:
    column = only_column(pandas_column(pd.Categorical([categories[1], None], categories)))
    assert column.categories == expected
    assert readable(column) == [expected[1], None]
    assert [type(category) for category in column.categories] == [type(category) for category in expected]


def test_arrow_dictionaries_with_nulls_and_duplicates_inside() -> None:
    dictionary = pa.array(["b", None, "a", "b"])
    column = only_column(arrow_column(pa.DictionaryArray.from_arrays(pa.array([3, 2, 1, None, 0]), dictionary)))
    assert column.categories == ("b", "a")
    assert readable(column) == ["b", "a", None, None, "b"]


def test_arrow_chunks_with_different_dictionaries_are_unified() -> None:
    chunks = [pa.array(words).dictionary_encode() for words in (["b", "a"], ["c", None, "a"])]
    column = only_column(pa.table({"a": pa.chunked_array(chunks)}))
    assert column.categories == ("b", "a", "c")
    assert readable(column) == ["b", "a", "c", None, "a"]


def test_the_order_of_string_categories_does_not_depend_on_the_rows() -> None:
    polars_column(["zz", "mm"], pl.Categorical)
    for build in (object_array, pandas_column, polars_column, arrow_column):
        assert only_column(build(["b", "a", "c"])).categories == only_column(build(["c", "b", "a"])).categories


@pytest.mark.parametrize(
    ("values", "categories", "expected"),
    [
        (np.array([5, -2, 5, 10**12]), (-2, 5, 10**12), [5, -2, 5, 10**12]),
        (np.array([7, 3, 7], dtype=np.uint8), (3, 7), [7, 3, 7]),
        (np.array([127, -128, 0], dtype=np.int8), (-128, 0, 127), [127, -128, 0]),
        (np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64), (2**64 - 2, 2**64 - 1), [2**64 - 1, 2**64 - 2]),
        (np.array([2**63 - 1, -(2**63)]), (-(2**63), 2**63 - 1), [2**63 - 1, -(2**63)]),
        (np.array([2.0, np.nan, -1.0]), (-1, 2), [2, None, -1]),
        (np.array([2.0, -0.0], dtype=np.float32), (0, 2), [2, 0]),
        (np.array([True, False, True]), (False, True), [True, False, True]),
        (np.array([np.nan, np.nan]), (), [None, None]),
    ],
)
def test_listed_numbers_become_categories(values: Any, categories: tuple[Any, ...], expected: list[Any]) -> None:
    table = table_from(np.ma.MaskedArray(np.column_stack([values, values])), categorical_feature=[1])
    assert isinstance(table.columns[0], NumericColumn)
    column = table.columns[1]
    assert column.categories == categories
    assert readable(column) == expected
    assert [type(category) for category in column.categories] == [type(category) for category in categories]


def test_listed_columns_of_every_framework() -> None:
    values = [4, None, 2]
    frames = [
        pandas_column(values, dtype="Int64"),
        pandas_column(values),
        pandas_column(values, dtype=object),
        polars_column(values),
        arrow_column(values),
    ]
    for frame in frames:
        for categorical_feature in (["a"], (0,), np.array([0]), ["a", 0]):
            column = only_column(frame, categorical_feature=categorical_feature)
            assert column.categories == (2, 4)
            assert readable(column) == values
    matrix = sparse.csr_array(np.array([[0], [3], [0]]))
    column = only_column(matrix, categorical_feature=[0])
    assert column.categories == (0, 3)
    assert readable(column) == [0, 3, 0]
    words = pandas_column(["b", "a"])
    assert only_column(words, categorical_feature=["a"]).categories == ("a", "b")


def test_as_categorical_leaves_categories_alone() -> None:
    column = only_column([["b"], ["a"]])
    assert as_categorical(column, "column 0 of X") is column


@pytest.mark.parametrize(
    ("columns", "names"),
    [(["a", "b[0]"], ("a", "b[0]")), ([0, 1], None), ([10, 10], None), ([("a", 1), ("a", 2)], None)],
)
def test_only_strings_count_as_names(columns: list[Any], names: tuple[str, ...] | None) -> None:
    frame = pd.DataFrame(np.ones((2, 2)))
    frame.columns = columns
    assert table_from(frame).names == names


def test_names_of_the_other_frames() -> None:
    data = {"b": [1, 2], "a": [3.0, 4.0]}
    for frame in (pl.DataFrame(data), pa.table(data), pa.table(data).to_batches()[0]):
        assert table_from(frame).names == ("b", "a")


def renamed(columns: list[Any]) -> Any:
    frame = pd.DataFrame(np.ones((2, len(columns))))
    frame.columns = columns
    return frame


class Unknown:
    pass


AGES = pd.DataFrame({"age": [1.0, 2.5], "sex": ["f", "m"]})
BAD_INPUT = [
    ("1-D", np.ones(3), {}, ValueError, r"Expected 2D array, got 1D array instead.*Reshape your data"),
    ("1-D list", [1, 2], {}, ValueError, r"Expected 2D array, got 1D array instead.*Reshape your data"),
    ("series", pd.Series([1, 2]), {}, ValueError, r"Expected 2D array, got 1D array instead"),
    ("polars series", pl.Series([1, 2]), {}, ValueError, r"Expected 2D array, got 1D array instead"),
    ("3-D", np.ones((2, 2, 2)), {}, ValueError, r"Found array with dim 3"),
    ("scalar", 3.0, {}, TypeError, r"got scalar array instead: X is a builtins.float"),
    ("unknown object", Unknown(), {}, TypeError, r"X is a .*Unknown, not an array, data frame"),
    ("lazy frame", pl.LazyFrame({"a": [1]}), {}, TypeError, r"X is a polars.*LazyFrame"),
    ("ragged", [[1, 2], [3, 4], [5]], {}, ValueError, r"row 2 of X has 1 values but row 0 has 2"),
    (
        "no rows",
        np.empty((0, 3)),
        {},
        ValueError,
        r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required\.",
    ),
    ("no rows, arrow", arrow_column([], pa.int8()), {}, ValueError, r"0 sample\(s\) \(shape=\(0, 1\)\)"),
    ("no rows, pandas", AGES.iloc[:0], {}, ValueError, r"0 sample\(s\) \(shape=\(0, 2\)\)"),
    (
        "no features",
        np.empty((4, 0)),
        {},
        ValueError,
        r"0 feature\(s\) \(shape=\(4, 0\)\) while a minimum of 1 is required\.",
    ),
    ("complex", np.ones((2, 1), dtype=complex), {}, ValueError, r"Complex data not supported: the column 0 of X"),
    ("complex objects", object_array([1, 2j]), {}, ValueError, r"Complex data not supported.*column 0 of X.*row 1"),
    ("complex pandas", pandas_column([1j, 2j]), {}, ValueError, r"Complex data not supported.*'a'"),
    ("complex sparse", sparse.csr_array(np.ones((2, 1)) * 1j), {}, ValueError, r"Complex data not supported"),
    ("bytes", np.array([[b"a"]]), {}, TypeError, r"column 0 of X has dtype \|S1"),
    (
        "dicts",
        object_array([1, {}]),
        {},
        TypeError,
        r"column 0 of X holds a dict in row 1: .*argument must be a string or a n",
    ),
    ("huge integer", [[1], [10**400]], {}, ValueError, r"column 0 of X holds an integer too large"),
    ("lists", pandas_column([None, "b", [1]]), {}, TypeError, r"column 'a' of X holds a list in row 2"),
    (
        "mixed",
        pandas_column([None, "b", 1], dtype=object),
        {},
        TypeError,
        r"column 'a' of X mixes strings \(row 1: 'b'\) and num",
    ),
    ("mixed dates", object_array([DAYS[0], 1]), {}, TypeError, r"mixes dates \(row 0.*and numbers \(row 1: 1\)"),
    (
        "pandas period",
        pandas_column(pd.period_range("2020", periods=2, freq="M")),
        {},
        TypeError,
        r"'a' of X.*period\[M\]",
    ),
    ("polars list", polars_column([[1], [2]]), {}, TypeError, r"column 'a' of X has the polars type List"),
    ("arrow struct", arrow_column([{"b": 1}]), {}, TypeError, r"column 'a' of X has the Arrow type struct"),
    (
        "mixed names",
        renamed(["a", 1]),
        {},
        TypeError,
        r"only supported if all input features have string names.*\['int', 'str'\]",
    ),
    ("duplicate names", renamed(["a", "b", "a"]), {}, ValueError, r"X has 2 columns named 'a'"),
    ("arrow duplicates", pa.table([[1], [2]], names=["a", "a"]), {}, ValueError, r"X has 2 columns named 'a'"),
    ("unknown name", AGES, {"categorical_feature": ["Sex"]}, ValueError, r"lists 'Sex'.*did you mean 'sex'\?"),
    ("unlike any name", AGES, {"categorical_feature": ["zzz"]}, ValueError, r"'zzz', which is not a column of X\.$"),
    (
        "name without names",
        [[1]],
        {"categorical_feature": ["a"]},
        ValueError,
        r"no string column names: list positions",
    ),
    ("position too large", AGES, {"categorical_feature": [2]}, ValueError, r"position 2, but X has 2 columns"),
    ("position negative", AGES, {"categorical_feature": [-1]}, ValueError, r"position -1"),
    ("flag", AGES, {"categorical_feature": [True, 0]}, TypeError, r"names or positions, got True"),
    ("long mask", AGES, {"categorical_feature": [True] * 3}, ValueError, r"mask of 3 columns, but X has 2"),
    ("bare string", AGES, {"categorical_feature": "sex"}, ValueError, r"for one column write \['sex'\]"),
    ("None", AGES, {"categorical_feature": None}, TypeError, r'must be "auto" or a list'),
    ("fraction", AGES, {"categorical_feature": ["age"]}, ValueError, r"column 'age' of X.*holds 2.5 in row 1"),
    ("infinite", [[1.0], [np.inf]], {"categorical_feature": [0]}, ValueError, r"column 0 of X.*holds inf in row 1"),
    ("other name", np.ones(3), {"name": "eval_set[0]"}, ValueError, r"eval_set\[0\] has shape \(3,\)"),
]


@pytest.mark.parametrize(
    ("X", "options", "error", "message"), [pytest.param(*case, id=name) for name, *case in BAD_INPUT]
)
def test_bad_input_is_named(X: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        table_from(X, **options)
    assert "\n" not in str(caught.value)


def test_dask_collections_are_handled_elsewhere() -> None:
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match=r"X is a Dask collection \(Array\): collections are handled elsewhere"):
        table_from(dask_array.ones((4, 2)))


def named_table(*names: str) -> Table:
    columns = tuple(NumericColumn(np.array([float(ord(name[0]))])) for name in names)
    return Table(columns, 1, names)


def test_columns_are_reordered_by_name() -> None:
    table = reordered(named_table("c", "a", "b"), ("a", "b", "c"), 3, estimator_name="Model")
    assert table.names == ("a", "b", "c")
    assert [column.values[0] for column in table.columns] == [ord("a"), ord("b"), ord("c")]
    same = named_table("a", "b")
    assert reordered(same, ("a", "b"), 2, estimator_name="Model") is same


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("age",), "X lacks the column 'sex' that Model was fitted with."),
        (("age", "sex", "z"), "X has the column 'z' that Model was not fitted with."),
        (
            ("Age", "sex"),
            (
                "X lacks the column 'age' that Model was fitted with and has the column 'Age' (did you mean 'age'?) "
                "that Model was not fitted with."
            ),
        ),
        (
            ("age", "sex", *"123456"),
            "X has the columns '1', '2', '3', '4', '5' and 1 more that Model was not fitted with.",
        ),
    ],
)
def test_missing_and_extra_columns_are_named(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        reordered(named_table(*names), ("age", "sex"), 2, estimator_name="Model")


@pytest.mark.parametrize("expected_names", [None, ("a", "b")])
def test_a_wrong_number_of_features_uses_the_words_of_scikit_learn(expected_names: tuple[str, ...] | None) -> None:
    with pytest.raises(ValueError, match="X has 1 features, but Model is expecting 2 features as input"):
        reordered(table_from(np.ones((3, 1))), expected_names, 2, estimator_name="Model")


def test_one_side_without_names_is_matched_by_position_with_a_warning() -> None:
    named, unnamed = named_table("a"), table_from(np.ones((1, 1)))
    with pytest.warns(
        UserWarning, match="X does not have valid feature names, but Model was fitted with feature names"
    ):
        assert reordered(unnamed, ("a",), 1, estimator_name="Model") is unnamed
    with pytest.warns(UserWarning, match="X has feature names, but Model was fitted without feature names"):
        assert reordered(named, None, 1, estimator_name="Model") is named


@pytest.mark.processes
def test_arrays_import_no_framework() -> None:
    script = (
        # scikit-learn loads some of them by itself.
        "import sys, numpy, sklearn.base, sklearn.utils.validation\n"
        "import dmlgbm.sklearn_api\n"
        "before = set(sys.modules)\n"
        "from dmlgbm.sklearn_api.tables import table_from\n"
        "table_from(numpy.ones((2, 2))); table_from([[1, 'a'], [None, 'b']])\n"
        "new = set(sys.modules) - before\n"
        "print([name for name in ('pandas', 'polars', 'pyarrow', 'scipy', 'dask') if name in new])"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == "[]"


def test_lazy_polars_frame_is_refused_with_the_way_out() -> None:
    frame = pl.LazyFrame({"a": [1.0, 2.0]})
    with pytest.raises(TypeError, match=r"X is a polars LazyFrame.*X\.collect\(\)"):
        table_from(frame)


def test_frames_are_read_alike_where_pandas_gives_series_only(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(
        {
            "number": [1.5, np.nan, 3.0],
            "whole": [1, 2, 3],
            "flag": [True, False, True],
            "text": ["b", None, "a"],
            "mixed": pd.Series([1, 2.5, None], dtype=object),
            "category": pd.Categorical(["y", "x", None], ["x", "y", "z"]),
            "day": pd.to_datetime(["2020-01-01", None, "2021-05-05"]),
            "zoned": pd.to_datetime(["2020-01-01", None, "2021-05-05"]).tz_localize("Europe/Berlin"),
            "span": pd.to_timedelta([1, 2, None], "s"),
            "nullable": pd.array([1, None, 3], "Int64"),
            "sparse": pd.arrays.SparseArray([0.0, 0.0, 1.0]),
        }
    )
    read = table_from(frame)
    assert hasattr(frame, "_iter_column_arrays"), "this version of pandas is read column by column"
    monkeypatch.delattr(pd.DataFrame, "_iter_column_arrays")
    again = table_from(frame)
    for one, other in zip(read.columns, again.columns, strict=True):
        assert type(one) is type(other)
        assert [np.asarray(part).tobytes() for part in vars(one).values()] == [
            np.asarray(part).tobytes() for part in vars(other).values()
        ]


@pytest.mark.parametrize("codes", [[2], [-1], [0], [3, -1, 3], [1, 2, 3, 0]])
def test_few_rows_are_read_with_the_categories_that_they_have(codes: list[int]) -> None:
    frame = pd.DataFrame({"c": pd.Categorical.from_codes(codes, ["d", "c", "b", "a"])})
    (column,), (whole,) = table_from(frame, only_present=True).columns, table_from(frame).columns
    assert isinstance(column, CategoricalColumn)
    assert isinstance(whole, CategoricalColumn)
    assert whole.categories == ("d", "c", "b", "a")
    written = [None if code < 0 else column.categories[code] for code in column.codes.tolist()]
    assert written == [None if code < 0 else whole.categories[code] for code in codes]
    assert set(column.categories) <= {"d", *(name for name in written if name is not None)} or len(codes) == 4
