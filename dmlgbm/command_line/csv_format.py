"""How a CSV file is written: the separator, the decimal mark and the encoding, named by the user or seen in the file.

The beginning of the file tells. Quoted values may hold separators and line breaks, so Python's own reader cuts it into
records; a separator is taken if it cuts all of them into the same number of values.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")

_SAMPLE_BYTES = 1 << 16
_SAMPLE_RECORDS = 50
_SEPARATORS = (",", ";", "\t", "|")
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
          codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8"}  # fmt: skip
_WITH_COMMA = re.compile(r"[+-]?\d+,(\d+)")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class CsvFormat:
    """How to read a file; None is for what the file itself tells."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    @property
    def described(self) -> str:
        """What is unusual, for people; empty for the usual."""
        usual = CsvFormat(",", ".", "utf-8")
        parts = {"separator": (self.separator, usual.separator), "decimal mark": (self.decimal, usual.decimal)}
        words = [f"{name} {value!r}" for name, (value, expected) in parts.items() if value != expected]
        return ", ".join([*words, *([] if self.encoding == usual.encoding else [f"encoding {self.encoding}"])])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all commands that read tables."""
    parser.add_argument(
        "--sep", type=_separator, metavar="CHAR", help="what stands between the values of a CSV file; tab for a tab"
    )
    parser.add_argument("--decimal", choices=(".", ","), help="decimal mark of a CSV file")
    parser.add_argument("--encoding", type=_encoding, metavar="NAME", help="encoding of a CSV file, such as latin-1")


def named_format(arguments: argparse.Namespace) -> CsvFormat:
    """What the options say."""
    return CsvFormat(arguments.sep, arguments.decimal, arguments.encoding)


def format_of(path: str, named: CsvFormat) -> CsvFormat:
    """What the user has named, and for the rest what the beginning of the file shows."""
    beginning = _beginning(path)
    encoding = named.encoding or _encoding_of(beginning)
    sample = _decoded(beginning, encoding)
    separator = named.separator or ("\t" if _is_tab_separated(path) else _separator_of(sample))
    if named.decimal == separator:
        raise ValueError(f"--decimal {named.decimal} is also the separator of {path}: name another one with --sep.")
    return CsvFormat(separator, named.decimal or _decimal_of(sample, separator), encoding)


def _beginning(path: str) -> bytes:
    try:
        with gzip.open(path) if path.lower().endswith(".gz") else Path(path).open("rb") as file:
            return file.read(_SAMPLE_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}.") from error


def _encoding_of(beginning: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if beginning.startswith(mark):
            return encoding
    # ASCII in two bytes, without a mark: every other byte is zero.
    if len(beginning) > 1 and beginning[1::2].count(0) > len(beginning) // 4:
        return "utf-16-le"
    if len(beginning) > 1 and beginning[::2].count(0) > len(beginning) // 4:
        return "utf-16-be"
    return "utf-8"


def _decoded(beginning: bytes, encoding: str) -> str:
    """The text of whole lines; a character or a line that is cut off at the end is left out."""
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(beginning, final=False).lstrip("\ufeff")
    whole, line_break, _ = text.rpartition("\n")
    return whole + line_break if len(beginning) == _SAMPLE_BYTES and line_break else text


def _is_tab_separated(path: str) -> bool:
    return path.lower().endswith((".tsv", ".tsv.gz"))


def _records(sample: str, separator: str) -> list[list[str]]:
    reader = csv.reader(sample.splitlines(keepends=True), delimiter=separator)
    try:
        records = [record for record, _ in zip(reader, range(_SAMPLE_RECORDS + 1), strict=False) if record]
    except csv.Error:  # a NUL, or a value of enormous length
        return []
    # The end of the sample may be in the middle of a quoted value.
    return records[:-1] if len(records) > _SAMPLE_RECORDS else records


def _separator_of(sample: str) -> str:
    for separator in _SEPARATORS:
        widths = {len(record) for record in _records(sample, separator)}
        if len(widths) == 1 and widths.pop() > 1:
            return separator
    return ","


def _decimal_of(sample: str, separator: str) -> str:
    """A comma if values show it: 1,5 is a number, while 1,234 may be one of thousands."""
    if separator == ",":
        return "."
    values = [value.strip() for record in _records(sample, separator)[1:] for value in record]
    if any(_WITH_POINT.fullmatch(value) for value in values):
        return "."
    fractions = [match[1] for value in values if (match := _WITH_COMMA.fullmatch(value))]
    return "," if any(len(fraction) != 3 for fraction in fractions) else "."


def _separator(text: str) -> str:
    separator = _NAMED_SEPARATORS.get(text, text)
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not a single character (or tab, comma, semicolon, space)")
    return separator


def _encoding(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of an encoding") from error
