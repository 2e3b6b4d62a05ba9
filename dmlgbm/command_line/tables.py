"""Reading and writing tables: CSV and Parquet, told apart by the file name, as pyarrow tables.

A CSV file says nothing about types, so pyarrow infers them from all rows; columns that must be text are named by the
caller. A Parquet file's types are taken as they are. Rows in messages are counted from 0, without the header.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CSV_SUFFIXES = (".csv", ".csv.gz")
_PARQUET_SUFFIXES = (".parquet", ".pq")
# The names that pandas gives to an index when it writes one: row numbers are no feature.
_INDEX_NAME = re.compile(r"|Unnamed: 0|__index_level_\d+__")


def is_csv(path: str) -> bool:
    """Whether the file is CSV; anything but CSV and Parquet is an error."""
    name = path.lower()
    if name.endswith(_CSV_SUFFIXES):
        return True
    if name.endswith(_PARQUET_SUFFIXES):
        return False
    known = ", ".join((*_CSV_SUFFIXES, *_PARQUET_SUFFIXES))
    raise ValueError(f"{path} is neither CSV nor Parquet by its name: it must end in one of {known}.")


def column_names(path: str) -> list[str]:
    """The columns of a file without those that hold a pandas index."""
    if is_csv(path):
        _require_pyarrow()
        from pyarrow import csv

        _require_readable(path)
        with _naming_rows(path), csv.open_csv(path, read_options=_in_order()) as reader:
            names = reader.schema.names
    else:
        names = _parquet(path).schema.names
    kept = [name for name in names if not _INDEX_NAME.fullmatch(name)]
    repeated = [name for name, count in Counter(kept).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has several columns named {repeated[0]!r}: rename them.")
    return kept


def read_columns(path: str, columns: Sequence[str], *, text_columns: Collection[str] = ()) -> Any:
    """Some columns of a file, at least one row of them. A CSV file's `text_columns` are not read as numbers."""
    table = _read_csv(path, columns, text_columns) if is_csv(path) else _parquet(path).to_table(columns=list(columns))
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def write_table(table: Any, path: str) -> None:
    """Write CSV or Parquet, or CSV on stdout for "-"; a file appears whole or not at all."""
    from gbdt.atomic_file import write_atomically

    sink = io.BytesIO()
    if path == "-" or is_csv(path):
        from pyarrow import csv

        csv.write_csv(table, sink)
    else:
        from pyarrow import parquet

        parquet.write_table(table, sink)
    if path == "-":
        sys.stdout.buffer.write(sink.getbuffer())
    elif path.lower().endswith(".gz"):
        write_atomically(path, gzip.compress(sink.getbuffer(), mtime=0))
    else:
        write_atomically(path, sink.getbuffer())


def require_writable(path: str) -> None:
    """Fail before the work and not after it, if a result could not be stored."""
    if path == "-":
        return
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder: name a file.")
    if not Path(path).parent.is_dir():
        raise ValueError(f"The folder of {path} does not exist: create it first.")


def _parquet(path: str) -> Any:
    _require_pyarrow()
    from pyarrow import dataset

    _require_readable(path)
    return dataset.dataset(path, format="parquet")


def _read_csv(path: str, columns: Sequence[str], text_columns: Collection[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    _require_readable(path)
    options = csv.ConvertOptions(
        include_columns=list(columns),
        column_types={name: pa.string() for name in columns if name in text_columns},
        strings_can_be_null=True,
    )
    try:
        table = csv.read_csv(path, convert_options=options)
    except pa.ArrowInvalid:
        with _naming_rows(path):
            table = csv.read_csv(path, convert_options=options, read_options=_in_order())
    _require_unicode(table, path)
    return table


def _in_order() -> Any:
    """Read one row after the other: only then does pyarrow say which row is broken."""
    from pyarrow import csv

    return csv.ReadOptions(use_threads=False)


@contextmanager
def _naming_rows(path: str) -> Iterator[None]:
    """pyarrow's complaints about a file with its row numbers (the header is number 1) turned into ours."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        message = str(error).removeprefix("CSV parse error: ")
        message = re.sub(r"^Row #(\d+)", lambda match: f"row {int(match[1]) - 2} (counted from 0)", message)
        raise ValueError(f"{path} is not a table: {message}.") from error


def _require_unicode(table: Any, path: str) -> None:
    """pyarrow calls text that is not UTF-8 binary."""
    import pyarrow as pa

    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_binary(column.type):
            row = next(row for row, value in enumerate(column.to_pylist()) if value is not None and not _is_utf8(value))
            raise ValueError(
                f"Column {name!r} of {path} holds text that is not UTF-8 in row {row} (counted from 0): convert the "
                "file to UTF-8."
            )


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _require_readable(path: str) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(2, "no such file", path)


def _require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError("Reading and writing tables needs pyarrow: pip install 'dmlgbm[cli]'") from error
