"""Reading and writing tables: CSV and Parquet, told apart by the file name, as pyarrow tables.

A CSV file says nothing about types, so pyarrow infers them from all rows; columns that must be text are named by the
caller. How it is written says `csv_format`. A Parquet file's types are taken as they are. Rows in messages are counted
from 0, without the header.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dmlgbm.command_line.csv_format import CSV_SUFFIXES, CsvFormat, format_of

_USUAL_BLOCK, _LARGEST_BLOCK, _MOST_COMPRESSED = 1 << 20, 1 << 28, 100
_PARQUET_SUFFIXES = (".parquet", ".pq")
# The names that pandas gives to an index when it writes one: row numbers are no feature.
_INDEX_NAME = re.compile(r"|Unnamed: 0|__index_level_\d+__")


def is_csv(path: str) -> bool:
    """Whether the file is CSV; anything but CSV and Parquet is an error."""
    name = path.lower()
    if name.endswith(CSV_SUFFIXES):
        return True
    if name.endswith(_PARQUET_SUFFIXES):
        return False
    known = ", ".join((*CSV_SUFFIXES, *_PARQUET_SUFFIXES))
    raise ValueError(f"{path} is neither CSV nor Parquet by its name: it must end in one of {known}.")


@dataclass(frozen=True)
class TableFile:
    """A file to read, and what the user has said of how it is written."""

    path: str
    named: CsvFormat

    @cached_property
    def is_csv(self) -> bool:
        return is_csv(self.path)

    @cached_property
    def format(self) -> CsvFormat:
        """How the CSV file is written."""
        _require_readable(self.path)
        return format_of(self.path, self.named)

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers in text."""
        return (self.format.decimal if self.is_csv else None) or "."

    @property
    def described(self) -> str:
        """What people should know of how the file is read: the path, and what is unusual in a CSV file."""
        unusual = self.format.described if self.is_csv else ""
        return f"{self.path} ({unusual})" if unusual else self.path

    def column_names(self) -> list[str]:
        """The columns of a file without those that hold a pandas index."""
        names = self._csv_names() if self.is_csv else _parquet(self.path).schema.names
        kept = [name for name in names if not _INDEX_NAME.fullmatch(name)]
        repeated = [name for name, count in Counter(kept).items() if count > 1]
        if repeated:
            raise ValueError(f"{self.path} has several columns named {repeated[0]!r}: rename them.")
        return kept

    def read_columns(self, columns: Sequence[str], *, text_columns: Collection[str] = ()) -> Any:
        """Some columns of a file, at least one row of them. A CSV file's `text_columns` are not read as numbers."""
        if self.is_csv:
            table = self._read_csv(columns, text_columns)
        else:
            table = _parquet(self.path).to_table(columns=list(columns))
        if table.num_rows == 0:
            raise ValueError(f"{self.path} has no rows.")
        return table

    def _csv_names(self) -> list[str]:
        _require_pyarrow()
        import pyarrow as pa
        from pyarrow import csv

        def names(in_order: bool) -> list[str]:
            options = {"read_options": self._read_options(in_order=in_order), "parse_options": self._parse_options()}
            with csv.open_csv(self._source(), **options) as reader:
                found: list[str] = reader.schema.names
            return found

        try:
            return names(in_order=False)
        except (pa.ArrowInvalid, UnicodeError):
            with _naming_rows(self.path):
                return names(in_order=True)

    def _read_csv(self, columns: Sequence[str], text_columns: Collection[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        options = {
            "parse_options": self._parse_options(),
            "convert_options": csv.ConvertOptions(
                include_columns=list(columns),
                column_types={name: pa.string() for name in columns if name in text_columns},
                strings_can_be_null=True,
                decimal_point=self.decimal,
            ),
        }
        try:
            table = csv.read_csv(self._source(), read_options=self._read_options(in_order=False), **options)
        except (pa.ArrowInvalid, UnicodeError):
            with _naming_rows(self.path):
                table = csv.read_csv(self._source(), read_options=self._read_options(in_order=True), **options)
        _require_unicode(table, self.path)
        return table

    def _source(self) -> Any:
        import pyarrow as pa

        # pyarrow knows compressed files by the lower-case ends of their names.
        is_compressed = self.path.lower().endswith(".gz")
        return pa.input_stream(self.path, compression="gzip") if is_compressed else self.path

    def _parse_options(self) -> Any:
        from pyarrow import csv

        # Without this, large files are cut at any line break, also at one inside a quoted value.
        return csv.ParseOptions(delimiter=self.format.separator, newlines_in_values=True)

    def _read_options(self, *, in_order: bool) -> Any:
        """`in_order` reads one row after the other: only then does pyarrow say which row is broken."""
        from pyarrow import csv

        encoding = self.format.encoding
        # No row may be longer than a block.
        size = max(_USUAL_BLOCK, min(_LARGEST_BLOCK, _MOST_COMPRESSED * Path(self.path).stat().st_size))
        block = size if in_order else _USUAL_BLOCK
        return csv.ReadOptions(use_threads=not in_order, encoding=encoding, block_size=block)


def write_table(table: Any, path: str) -> None:
    """Write CSV or Parquet, or CSV on stdout for "-"; a file appears whole or not at all."""
    from dmlgbm.gbdt.system.atomic_file import write_atomically

    sink = io.BytesIO()
    if path == "-" or is_csv(path):
        from pyarrow import csv

        separator = "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
        csv.write_csv(table, sink, csv.WriteOptions(delimiter=separator))
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


@contextmanager
def _naming_rows(path: str) -> Iterator[None]:
    """pyarrow's complaints about a file with its row numbers (the header is number 1) turned into ours."""
    import pyarrow as pa

    try:
        yield
    except UnicodeError as error:
        raise ValueError(f"{path} cannot be decoded ({error}): name its encoding with --encoding.") from error
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
                f"Column {name!r} of {path} holds text that is not UTF-8 in row {row} (counted from 0): name the "
                "encoding of the file, such as --encoding latin-1."
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
