"""CSV files as people have them are read; nothing in them is sent raw to a terminal or a spreadsheet."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import pytest

import dmlgbm
from dmlgbm.command_line.console import Console, visible
from dmlgbm.command_line.csv_format import CsvFormat
from dmlgbm.command_line.main import main

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")

from dmlgbm.command_line.spreadsheet_text import without_formulas  # noqa: E402
from dmlgbm.command_line.tables import TableFile  # noqa: E402

ROWS = [("x", "town", "y"), *((f"{row / 4}", ("Köln", "a, b")[row % 2], f"{row % 3}") for row in range(40))]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text_of(separator: str = ",", decimal: str = ".") -> str:
    lines = []
    for row in ROWS:
        values = [row[0].replace(".", decimal) if row is not ROWS[0] else row[0], *row[1:]]
        quoted = [f'"{value}"' if any(mark in value for mark in f"{separator},") else value for value in values]
        lines.append(separator.join(quoted))
    return "\n".join(lines) + "\n"


def read(path: str, *, separator: str | None = None, decimal: str | None = None, encoding: str | None = None) -> Any:
    file = TableFile(path, CsvFormat(separator, decimal, encoding))
    return file.read_columns(file.column_names())


EXPECTED = {"x": [float(row[0]) for row in ROWS[1:]], "town": [row[1] for row in ROWS[1:]],
            "y": [int(row[2]) for row in ROWS[1:]]}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ","), ("|", ".")])
def test_format_is_seen_in_the_file(encoding: str, separator: str, decimal: str) -> None:
    Path("data.csv").write_bytes(text_of(separator, decimal).encode(encoding))
    assert read("data.csv").to_pydict() == EXPECTED


@pytest.mark.parametrize("name", ["data.tsv", "data.tsv.gz", "data.csv.gz", "DATA.CSV.GZ"])
def test_name_of_the_file_tells_separator_and_compression(name: str) -> None:
    data = text_of("\t" if "tsv" in name else ",").encode()
    Path(name).write_bytes(gzip.compress(data) if name.lower().endswith("gz") else data)
    assert read(name).to_pydict() == EXPECTED


def test_compressed_file_of_another_encoding_is_read() -> None:
    Path("data.csv.gz").write_bytes(gzip.compress(text_of(";", ",").encode("utf-16")))
    assert read("data.csv.gz").to_pydict() == EXPECTED


def test_named_format_wins() -> None:
    Path("data.csv").write_bytes(text_of("#", ",").encode("latin-1"))
    assert read("data.csv", separator="#", decimal=",", encoding="latin-1").to_pydict() == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("only\n1\n2\n", {"only": [1, 2]}),
        ("a;b\n1,234;2\n1,500;3\n", {"a": ["1,234", "1,500"], "b": [2, 3]}),
        ('"a;b",c\n1,2\n', {"a;b": [1], "c": [2]}),
        ("a,b\n1;5,2\n", {"a": ["1;5"], "b": [2]}),
        ('"a\nb";c\n1;2,5\n', {"a\nb": [1], "c": [2.5]}),
    ],
)
def test_what_only_looks_like_another_format_is_left_alone(text: str, expected: dict[str, Any]) -> None:
    Path("data.csv").write_text(text, encoding="utf-8")
    assert read("data.csv").to_pydict() == expected


@pytest.mark.parametrize("width", [1, 7, 30, 31, 64, 100, 333])
def test_line_breaks_in_values_survive_in_large_files(width: int) -> None:
    n_rows = 3_000_000 // (width + 40)
    value = "a,b\n" + "x" * width + "\n1,2\n"
    Path("data.csv").write_text(
        "n,text,last\n" + "".join(f'{row},"{value}",{row}\n' for row in range(n_rows)), encoding="utf-8"
    )
    table = read("data.csv")
    assert table["n"].to_pylist() == table["last"].to_pylist() == list(range(n_rows))
    assert table["text"].unique().to_pylist() == [value]


def test_value_that_is_longer_than_a_block_is_read() -> None:
    value = "line\n" * 500_000
    Path("data.csv").write_text(f'text,n\n"{value}",1\nshort,2\n', encoding="utf-8")
    assert read("data.csv").to_pydict() == {"text": [value, "short"], "n": [1, 2]}


def fails_with(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_wrong_formats_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data.csv").write_bytes(text_of().encode("latin-1"))
    train = ("train", "data.csv", "--target", "y", "--out", "m.dml")
    assert "--encoding latin-1" in fails_with(capsys, *train)
    assert "not the name of an encoding" in fails_with(capsys, *train, "--encoding", "latin-99")
    assert "not a single character" in fails_with(capsys, *train, "--sep", "ab")
    assert "is also the separator" in fails_with(capsys, *train, "--sep", ",", "--decimal", ",")
    assert "--encoding" in fails_with(capsys, *train, "--encoding", "ascii")
    Path("data.csv.gz").write_bytes(b"no gzip")
    assert "is not a whole gzip file" in fails_with(capsys, "train", "data.csv.gz", *train[2:])


def test_model_does_not_depend_on_how_the_table_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plain.csv").write_text(text_of(), encoding="utf-8")
    Path("other.csv").write_bytes(text_of(";", ",").encode("utf-16"))
    options = ("--target", "y", "-p", "n_estimators=2", "-p", "min_child_samples=2", "-p", "n_jobs=1", "--out")
    assert main(["train", "plain.csv", *options, "plain.dml"]) == 0
    capsys.readouterr()
    assert main(["train", "other.csv", *options, "other.dml", "--valid", "plain.csv"]) == 0
    assert "other.csv (separator ';', decimal mark ',', encoding utf-16): 40 rows" in capsys.readouterr().out
    assert main(["train", "other.csv", *options, "other.dml"]) == 0
    assert Path("plain.dml").read_bytes() == Path("other.dml").read_bytes()
    for data in ("plain.csv", "other.csv"):
        assert main(["predict", "plain.dml", data, "--out", f"{data}.tsv"]) == 0
    assert Path("plain.csv.tsv").read_bytes() == Path("other.csv.tsv").read_bytes()


def test_number_with_text_is_named_also_with_a_decimal_comma(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data.csv").write_text("a;y\n" + "1,5;1\n" * 9 + "?;0\n", encoding="utf-8")
    assert "9 of its 10 values are numbers" in fails_with(
        capsys, "train", "data.csv", "--target", "y", "--out", "m.dml"
    )


# What is sent to a terminal.


def test_what_would_control_a_terminal_is_shown() -> None:
    assert visible("a\x1b[2Jb\x9b31mc\rd\u202ee\nf ü") == "a\\x1b[2Jb\\x9b31mc\\rd\\u202ee\\nf ü"


def test_names_of_columns_and_classes_send_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x9b2J"
    rows = "".join(f"{row},{(evil, 'b')[row % 2]},k{evil}{row % 2}\n" for row in range(60))
    Path("data.csv").write_text(f"n{evil},c{evil},y{evil}\n{rows}", encoding="utf-8")
    small = ("-p", "n_estimators=2", "-p", "min_child_samples=2", "-p", "n_jobs=1")
    assert main(["train", "data.csv", "--target", f"y{evil}", "--out", "m.dml", *small]) == 0
    assert main(["inspect", "m.dml", "--trees", "1"]) == 0
    assert main(["inspect", "m.dml", "--trees", "1", "--json"]) == 0
    assert main(["predict", "m.dml", "data.csv", "--proba", "--out", "p.csv"]) == 0
    assert main(["train", "data.csv", "--target", f"z{evil}", "--out", "m.dml"]) == 2
    assert main(["predict", "m.dml", f"absent{evil}.csv", "--out", "p.csv"]) == 2
    sent = "".join(capsys.readouterr())
    assert not set("\x1b\x07\x9b") & set(sent)
    assert "\\x1b]0;owned" in sent


def test_progress_is_drawn_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not Console().shows_progress


# What is written for a spreadsheet.


@pytest.mark.parametrize("label", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_label_that_is_a_formula_is_written_with_a_quote(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    features = pa.table({"a": [float(row) for row in range(60)], "=kept": [label] * 60})
    y = [label if row < 30 else "plain" for row in range(60)]
    dmlgbm.DMLGBMClassifier(n_estimators=2, n_jobs=1, min_child_samples=2).fit(features.select(["a"]), y).save_model(
        "m.dml"
    )
    csv.write_csv(features, "data.csv")
    predict = ("predict", "m.dml", "data.csv", "--keep", "=kept", "--out")
    assert main([*predict, "safe.csv"]) == 0
    assert "--formulas keep" in capsys.readouterr().err
    safe = csv.read_csv("safe.csv", parse_options=csv.ParseOptions(newlines_in_values=True))
    assert safe.column_names == ["'=kept", "prediction"]
    assert set(safe["prediction"].to_pylist()) == {f"'{label}", "plain"}
    assert main([*predict, "raw.csv", "--formulas", "keep"]) == 0
    assert capsys.readouterr().err == ""
    raw = csv.read_csv("raw.csv", parse_options=csv.ParseOptions(newlines_in_values=True))
    assert raw.column_names == ["=kept", "prediction"]
    assert set(raw["prediction"].to_pylist()) == {label, "plain"}
    assert main([*predict, "out.parquet"]) == 0
    assert "formula" not in capsys.readouterr().err


def test_numbers_and_missing_text_are_no_formulas() -> None:
    table = pa.table({"a": ["-5", "+1.5e3", None, "a=b", "-.5"], "n": [-1.0, 2.0, 3.0, 4.0, None]})
    assert without_formulas(table).equals(table)
