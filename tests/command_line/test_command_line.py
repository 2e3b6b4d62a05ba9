"""The `dmlgbm` command: what it writes, what it says, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgbm
from dmlgbm.command_line import inspect as inspect_command
from dmlgbm.command_line.generated_rows import generated_rows
from dmlgbm.command_line.main import main
from dmlgbm.command_line.parameter_arguments import parameter
from dmlgbm.command_line.task import guessed_task

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

N_ROWS = 300
SMALL = ("-p", "n_estimators=5", "-p", "n_jobs=1")
NOT_FEATURES = {"number": "label grade weight query", "label": "number grade weight query"}
NOT_FEATURES["grade"] = "number label weight query"


@pytest.fixture(scope="module")
def table() -> Any:
    features, target = generated_rows(N_ROWS, 3)
    rows = np.arange(N_ROWS)
    return pa.table(
        {
            "a": features[:, 0],
            "b": pa.array(features[:, 1], mask=rows % 10 == 3),
            "city": pa.array([("paris", "rome", None)[row % 3] for row in rows]),
            "code": [("7", "08", "x1", "x2")[row % 4] for row in rows],
            "number": target + (rows % 4),
            "label": np.where(target > 0, "yes", "no").tolist(),
            "grade": (target > 0).astype(np.int64) + (target > 0.5),
            "weight": 1.0 + rows % 2,
            "query": rows // 10,
        }
    )


@pytest.fixture
def folder(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table as data.csv and data.parquet in the current folder."""
    monkeypatch.chdir(tmp_path)
    csv.write_csv(table, "data.csv")
    parquet.write_table(table, "data.parquet")
    return tmp_path


def run(*arguments: str) -> None:
    assert main(list(arguments)) == 0


def train(data: str, target: str, *options: str, out: str = "model.dml") -> None:
    run("train", data, "--target", target, "--out", out, "--drop", *NOT_FEATURES[target].split(), *SMALL, *options)


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence with which a command fails."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dmlgbm")
    assert captured.err.count("\n") == 1
    return captured.err


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    run(*arguments, "--json")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def write_csv(text: str, path: str = "other.csv") -> str:
    Path(path).write_text(text, encoding="utf-8")
    return path


# Train and predict.


@pytest.mark.parametrize("data", ["data.csv", "data.parquet"])
@pytest.mark.parametrize("target", ["number", "label", "grade"])
def test_trained_model_is_the_one_of_the_estimator(folder: Path, table: Any, data: str, target: str) -> None:
    train(data, target)
    dropped = [target, *NOT_FEATURES[target].split()]
    estimator_class = dmlgbm.DMLGBMRegressor if target == "number" else dmlgbm.DMLGBMClassifier
    features = table.drop_columns(dropped)
    expected = estimator_class(n_estimators=5, n_jobs=1).fit(features, table[target].to_numpy())
    run("predict", "model.dml", data, "--out", "predictions.parquet")
    predictions = parquet.read_table("predictions.parquet")
    assert predictions.column_names == ["prediction"]
    assert predictions["prediction"].to_pylist() == expected.predict(features).tolist()


def test_csv_and_parquet_give_the_same_model_file(folder: Path) -> None:
    train("data.csv", "label", out="from_csv.dml")
    train("data.parquet", "label", out="from_parquet.dml")
    assert Path("from_csv.dml").read_bytes() == Path("from_parquet.dml").read_bytes()


def test_ranking_by_a_column_of_queries(folder: Path, table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("--qid", "query", "--weight", "weight", "--drop", "number", "label")
    options = ("train", "data.csv", "--target", "grade", "--out", "m.dml", *columns, "--valid", "data.parquet", *SMALL)
    result = json_of(capsys, *options)
    assert (result["task"], result["features"]) == ("ranking", 4)
    assert set(result["metrics"]) == {f"ndcg@{position}" for position in range(1, 6)}
    assert isinstance(dmlgbm.load_model("m.dml"), dmlgbm.DMLGBMRanker)
    settings = ("-p", "objective=rank:pairwise", "-p", "label_gain=[0, 1, 2, 4, 8]", "-p", "lambdarank_norm=false")
    assert json_of(capsys, *options, *settings)["task"] == "ranking"
    parameters = dmlgbm.load_model("m.dml").get_params()
    assert parameters["objective"] == "rank:pairwise"
    assert list(parameters["label_gain"]) == [0, 1, 2, 4, 8]
    assert parameters["lambdarank_norm"] is False
    at = options.index("--weight")
    unbiased = json_of(capsys, *options[:at], "--position", *options[at + 1 :])
    assert (unbiased["task"], unbiased["features"]) == ("ranking", 4)


def test_survival_times_are_a_regression(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("-p", "objective=survival:aft", "-p", "aft_loss_distribution=logistic", "-p", "eval_metric=c_index")
    options = ("--drop", *NOT_FEATURES["number"].split(), "--valid", "data.parquet", *SMALL, *settings)
    result = json_of(capsys, "train", "data.csv", "--target", "number", "--out", "m.dml", *options)
    assert (result["task"], set(result["metrics"])) == ("regression", {"c_index"})
    assert dmlgbm.load_model("m.dml").get_params()["aft_loss_distribution"] == "logistic"


def test_train_reports_one_json_object_and_text_on_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--drop", *NOT_FEATURES["label"].split(), *SMALL, "--validation-fraction", "0.2", "--json")
    run("train", "data.csv", "--target", "label", "--out", "model.dml", *options)
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert (result["rows"], result["features"], result["trees"]) == (N_ROWS, 4, 5)
    assert result["bytes"] == Path("model.dml").stat().st_size
    assert 1 <= result["best_iteration"] <= 5
    assert result["metrics"]["binary_logloss"] > 0
    assert "task: classification, because the target is text" in captured.err


def test_train_measures_what_eval_metric_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("--drop", *NOT_FEATURES["label"].split(), "--validation-fraction", "0.2")
    listed = ("-p", 'eval_metric=["average_precision", "mcc", "neg_log_loss"]')
    result = json_of(capsys, "train", "data.csv", "--target", "label", "--out", "m.dml", *columns, *SMALL, *listed)
    assert list(result["metrics"]) == ["average_precision", "mcc", "neg_log_loss"]


def test_train_summary_and_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "number")
    out = capsys.readouterr().out
    assert "data.csv: 300 rows, 4 features, target 'number'" in out
    assert "task: regression, because the target holds 300 distinct numbers" in out
    assert "saved model.dml" in out
    train("data.csv", "number", "--quiet")
    assert capsys.readouterr() == ("", "")


def test_progress_is_drawn_on_a_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train("data.csv", "number")
    assert "5/5" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    train("data.csv", "number")
    assert "5/5" in capsys.readouterr().err


def test_validation_file_stops_training(folder: Path, table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    opposite = ["no" if label == "yes" else "yes" for label in table["label"].to_pylist()]
    csv.write_csv(table.set_column(table.column_names.index("label"), "label", [opposite]), "opposite.csv")
    columns = ("--target", "label", "--drop", *NOT_FEATURES["label"].split())
    parameters = ("-p", "early_stopping_rounds=3", "-p", "n_jobs=1")
    result = json_of(capsys, "train", "data.csv", "--out", "m.dml", *columns, *parameters, "--valid", "opposite.csv")
    assert (result["best_iteration"], result["iterations"]) == (1, 4)


def test_parameters_of_a_file_and_of_options(folder: Path) -> None:
    Path("parameters.json").write_text('{"num_leaves": 5, "max_depth": 2}')
    train("data.csv", "number", "--params", "parameters.json", "-p", "max_depth=3", "--categorical", "code")
    model = dmlgbm.load_model("model.dml")
    assert (model.num_leaves, model.max_depth, model.categorical_feature) == (5, 3, ("code",))


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("0.5", 0.5), ("true", True), ("False", False), ("None", None), ("[1,2]", [1, 2])]
)
def test_values_of_parameters(text: str, value: object) -> None:
    assert parameter(f"name={text}") == ("name", value)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        ([1, 2, 3], "classification"),
        ([0.0, 1.0], "classification"),
        ([0.5, 1.0], "regression"),
        (list(range(100)), "regression"),
    ],
)
def test_guessed_task(values: list[Any], task: str) -> None:
    assert guessed_task(pa.chunked_array([values])).name == task


def test_objective_decides_the_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "grade", "-p", "objective=poisson")
    assert "task: regression, because of objective=poisson" in capsys.readouterr().out


def test_predict_ignores_other_columns_and_their_order(folder: Path, table: Any) -> None:
    train("data.parquet", "label")
    reversed_columns = table.select(table.column_names[::-1])
    parquet.write_table(reversed_columns, "reversed.parquet")
    csv.write_csv(table.select(["code", "city", "b", "a"]), "features.csv")
    for data in ("data.parquet", "reversed.parquet", "features.csv"):
        run("predict", "model.dml", data, "--out", f"{data}.csv")
    contents = {Path(f"{data}.csv").read_bytes() for data in ("data.parquet", "reversed.parquet", "features.csv")}
    assert len(contents) == 1


def test_predict_probabilities_and_keep_columns(folder: Path, table: Any) -> None:
    train("data.parquet", "label")
    run("predict", "model.dml", "data.parquet", "--out", "p.parquet", "--proba", "--keep", "label", "query")
    written = parquet.read_table("p.parquet")
    assert written.column_names == ["label", "query", "probability_no", "probability_yes"]
    expected = dmlgbm.load_model("model.dml").predict_proba(table.select(["a", "b", "city", "code"]))
    assert np.array_equal(np.column_stack([written["probability_no"], written["probability_yes"]]), expected)
    assert written["label"].equals(table["label"])


def test_predict_raw_scores(folder: Path) -> None:
    train("data.parquet", "grade")
    run("predict", "model.dml", "data.parquet", "--out", "p.csv", "--raw")
    assert csv.read_csv("p.csv").column_names == ["raw_score_0", "raw_score_1", "raw_score_2"]
    train("data.parquet", "label")
    run("predict", "model.dml", "data.parquet", "--out", "p.csv.gz", "--raw")
    assert csv.read_csv("p.csv.gz").column_names == ["raw_score"]


def test_predict_to_stdout(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    train("data.csv", "number", "--quiet")
    run("predict", "model.dml", "data.csv", "--out", "p.csv", "--quiet")
    capfdbinary.readouterr()
    run("predict", "model.dml", "data.csv", "--out", "-")
    captured = capfdbinary.readouterr()
    assert captured.out == Path("p.csv").read_bytes()
    assert b"predicted 300 rows" in captured.err


def test_text_that_looks_like_numbers_stays_text_in_predictions(folder: Path, table: Any) -> None:
    train("data.csv", "number", "-p", "handle_unknown=error", "-p", "min_data_per_group=1")
    digits = table.filter(pa.array([code in ("7", "08") for code in table["code"].to_pylist()]))
    csv.write_csv(digits, "digits.csv")
    run("predict", "model.dml", "digits.csv", "--out", "p.parquet")
    expected = dmlgbm.load_model("model.dml").predict(digits.select(["a", "b", "city", "code"]))
    assert parquet.read_table("p.parquet")["prediction"].to_pylist() == expected.tolist()


def test_index_that_pandas_wrote_is_no_feature(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(",x,y\n" + "".join(f"{row},{row % 7},{row * 0.5}\n" for row in range(60)))
    result = json_of(capsys, "train", path, "--target", "y", "--out", "m.dml", *SMALL)
    assert result["features"] == 1


def test_model_without_column_names_takes_columns_by_position(
    folder: Path, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    features = np.column_stack([table["a"].to_numpy(), table["weight"].to_numpy()])
    model = dmlgbm.DMLGBMRegressor(n_estimators=3, n_jobs=1).fit(features, table["number"].to_numpy())
    model.save_model("model.dml")
    parquet.write_table(table.select(["query", "a", "weight"]), "two.parquet")
    run("predict", "model.dml", "two.parquet", "--keep", "query", "--out", "p.parquet")
    assert parquet.read_table("p.parquet")["prediction"].to_pylist() == model.predict(features).tolist()
    assert "without column names" in error_of(capsys, "predict", "model.dml", "two.parquet", "--out", "p.parquet")


# Failures.


def test_text_in_a_column_of_numbers_names_column_and_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv("x,y\n1,0.1\n2,0.2\n?,0.3\n4,0.4\n")
    message = error_of(capsys, "train", path, "--target", "y", "--out", "m.dml")
    assert "Column 'x' of other.csv holds '?' in row 2" in message
    assert "--categorical x" in message
    path = write_csv("x,y\n1,0.1\n2,0.2\n3,high\n4,0.4\n")
    message = error_of(capsys, "train", path, "--target", "y", "--out", "m.dml")
    assert "Column 'y' of other.csv holds 'high' in row 2" in message
    assert "--task classification" in message
    message = error_of(capsys, "train", path, "--target", "y", "--task", "regression", "--out", "m.dml")
    assert "Column 'y' of other.csv holds 'high' in row 2" in message


def test_text_in_a_column_of_numbers_to_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "number")
    path = write_csv("a,b,city,code\n0.1,0.2,rome,7\nlow,0.2,rome,7\n")
    message = error_of(capsys, "predict", "model.dml", path, "--out", "p.csv")
    assert "Column 'a' of other.csv holds 'low' in row 1" in message
    assert not Path("p.csv").exists()


def test_missing_values_where_there_must_be_some(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv("x,y,w\n1,0.1,1\n2,,1\n3,0.3,\n")
    message = error_of(capsys, "train", path, "--target", "y", "--out", "m.dml")
    assert "Column 'y' of other.csv has no value in row 1" in message
    message = error_of(capsys, "train", path, "--target", "x", "--weight", "w", "--out", "m.dml")
    assert "Column 'w' of other.csv has no value in row 2" in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "Empty CSV file"),
        (b"x,y\n", "has no rows"),
        (b"x,y\n1,2\n3\n", "row 1 (counted from 0): Expected 2 columns, got 1"),
        (b"x,x,y\n1,2,3\n", "several columns named 'x'"),
        (b"x,y\n\xff,1\nb,2\n", "Column 'x' of other.csv holds text that is not UTF-8 in row 0"),
        (b"y\n1\n2\n", "no column left to learn from"),
        (b"x,z\n1,2\n", "no column 'y' for --target"),
    ],
)
def test_broken_csv(folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, expected: str) -> None:
    Path("other.csv").write_bytes(content)
    assert expected in error_of(capsys, "train", "other.csv", "--target", "y", "--out", "m.dml")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("data.csv --target lable --out m.dml", "did you mean 'label'?"),
        ("data.csv --target label --out m.dml --drop nothing", "no column 'nothing' for --drop"),
        ("data.csv --target label --out m.dml --weight label", "given to both --target and --weight"),
        ("data.csv --target label --out no/such/m.dml", "does not exist"),
        ("data.csv --target label --out .", "is a folder"),
        ("data.xls --target label --out m.dml", "neither CSV nor Parquet"),
        ("absent.csv --target label --out m.dml", "absent.csv: no such file"),
        ("data.csv --target label --out m.dml -p num_leafs=3", "did you mean 'num_leaves'?"),
        ("data.csv --target label --out m.dml -p num_leaves=1", "num_leaves=1 is out of range"),
        ("data.csv --target label --out m.dml -p num_leaves", "not of the form name=value"),
        ("data.csv --target label --out m.dml --params data.csv", "data.csv is not JSON"),
        ("data.csv --target grade --out m.dml --task ranking", "Ranking needs --qid"),
        ("data.csv --target grade --out m.dml --task regression --qid query", "--qid query is for ranking"),
        ("data.csv --target grade --out m.dml --position number", "--position is for ranking"),
        ("data.csv --out m.dml", "the following arguments are required: --target"),
        ("data.csv --target label --out m.dml --valid a.csv --validation-fraction 0.1", "not allowed with argument"),
    ],
)
def test_wrong_options_of_train(folder: Path, capsys: pytest.CaptureFixture[str], options: str, expected: str) -> None:
    assert expected in error_of(capsys, "train", *options.split())
    assert not Path("m.dml").exists()


def test_wrong_options_of_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "number")
    for arguments, expected in [
        (("model.dml", write_csv("a,b,citty,code\n1,2,x,y\n"), "--out", "p.csv"), "no column 'city' (did you mean"),
        (("data.csv", "data.csv", "--out", "p.csv"), "model file 'data.csv'"),
        (("model.dml", "data.csv", "--out", "p.txt"), "neither CSV nor Parquet"),
        (("model.dml", "data.csv", "--out", "p.csv", "--proba"), "--proba is for classifiers"),
        (("model.dml", "data.csv", "--out", "-", "--json"), "both want stdout"),
        (("model.dml", "data.csv", "--out", "p.csv", "--keep", "z"), "no column 'z' for --keep"),
    ]:
        assert expected in error_of(capsys, "predict", *arguments)


def test_failure_leaves_an_older_result_as_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "number")
    before = Path("model.dml").read_bytes()
    error_of(capsys, "train", "data.csv", "--target", "city", "--out", "model.dml")
    assert Path("model.dml").read_bytes() == before


def test_traceback_is_shown_on_request(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLGBM_TRACEBACK", "1")
    assert main(["inspect", "absent.dml"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_ends_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect_command, "run", interrupted)
    assert main(["inspect", "model.dml"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_warnings_are_sentences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "number", "-p", "subsample=0.5")
    assert capsys.readouterr().err.startswith("dmlgbm: warning: subsample=0.5 has no effect")


def test_missing_pyarrow_is_explained(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = error_of(capsys, "train", "data.csv", "--target", "y", "--out", "m.dml")
    assert "pip install 'dmlgbm[cli]'" in message


# The other commands.


def test_inspect_shows_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("data.csv", "label", "--quiet")
    run("inspect", "model.dml", "--trees", "1")
    out = capsys.readouterr().out
    for expected in ("DMLGBMClassifier, objective binary", "2: no, yes", "4, 2 of them categorical", "█", "leaf 0:"):
        assert expected in out
    model = dmlgbm.load_model("model.dml")
    result = json_of(capsys, "inspect", "model.dml", "--trees", "2")
    assert result["trees"] == 5
    assert result["parameters"] == {"n_estimators": 5}
    assert len(result["first_trees"]) == 2
    assert result["first_trees"][0]["leaf_value"] == model.booster_.trees[0].leaf_value.tolist()
    gains = [entry["gain"] for entry in result["importances"]]
    assert gains == sorted(model.booster_.feature_importance("gain").tolist(), reverse=True)


def test_inspect_reads_checkpoints(folder: Path, table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    features = table.select(["a", "b"])
    dmlgbm.DMLGBMRegressor(n_estimators=2).fit(
        features, table["number"].to_numpy(), callbacks=[dmlgbm.checkpoint("checkpoint.dml")]
    )
    run("inspect", "checkpoint.dml")
    assert "a checkpoint" in capsys.readouterr().out


def test_bench_measures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    result = json_of(capsys, "bench", "--rows", "2000", "--features", "3", "--trees", "2")
    assert result["libraries"].keys() == {"dmlgbm"}
    assert result["libraries"]["dmlgbm"]["fit_seconds"] > 0
    assert 0 < result["libraries"]["dmlgbm"]["log_loss"] < 0.7
    assert "not a whole number above zero" in error_of(capsys, "bench", "--rows", "none")


def output_of_new_interpreter(*arguments: str) -> str:
    completed = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=380, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.processes
def test_help_and_version_load_no_library() -> None:
    program = """
import sys
from dmlgbm.command_line.main import main
assert main(["train", "--help"]) == main(["--version"]) == 0
print(*{"numpy", "numba", "sklearn", "pyarrow"} & set(sys.modules))
"""
    lines = output_of_new_interpreter("-c", program).splitlines()
    assert lines[-2:] == [f"dmlgbm {dmlgbm.__version__}", ""]


@pytest.mark.processes
def test_module_runs_as_a_program() -> None:
    assert output_of_new_interpreter("-m", "dmlgbm", "--version") == f"dmlgbm {dmlgbm.__version__}\n"


@pytest.mark.processes
@pytest.mark.timeout(400)  # compiles everything
def test_warmup_meets_every_kernel_that_the_engine_calls() -> None:
    program = """
import importlib, json, pkgutil, sys
from dmlgbm import gbdt
from dmlgbm.command_line.main import main
from dmlgbm.gbdt.kernels.leaf_values import add_to_rows, label_rows, sum_leaves
from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.neural.kernels.optimiser_steps import adam_direction, adam_step, momentum_step, nesterov_step
assert main(["warmup", "--json"]) == 0
steps = (adam_direction, adam_step, momentum_step, nesterov_step)
assert all(kernel.n_entries == 2 for kernel in steps), "single and double precision"
assert all(kernel.n_entries == 2 for kernel in (add_to_rows, label_rows, sum_leaves)), "labels of one byte and of four"
for info in pkgutil.walk_packages(gbdt.__path__, "dmlgbm.gbdt."):
    if not info.name.startswith("dmlgbm.gbdt.kernels"):
        names = vars(importlib.import_module(info.name)).items()
        print(*(name for name, kernel in names if isinstance(kernel, Kernel) and kernel.n_entries == 0))
"""
    result, *unused = output_of_new_interpreter("-c", program).splitlines()
    assert "".join(unused) == ""
    assert json.loads(result)["from_disk"] + json.loads(result)["compiled"] > 30


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_signs_in_numbers_are_warned_of_and_dates_of_csv_are_read(
    suffix: str, folder: Path, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = range(N_ROWS)
    data = table.append_column("price", pa.array([f"${row % 7}.50" for row in rows]))
    data = data.append_column("share", pa.array([f"{row % 9}.5 %" for row in rows]))
    data = data.append_column("day", pa.array([f"2024-01-{1 + row % 28:02}" for row in rows]))
    csv.write_csv(data, "signs.csv")
    parquet.write_table(data, "signs.parquet")
    train(f"signs.{suffix}", "number")
    told = capsys.readouterr().err
    for column in ("price", "share", *(["day"] if suffix == "parquet" else [])):
        assert told.count(f"dmlgbm: warning: The column '{column}' of X holds") == 1
    assert ("'day'" in told) == (suffix == "parquet")
    run("predict", "model.dml", f"signs.{suffix}", "--out", "out.csv")
    assert csv.read_csv("out.csv").num_rows == N_ROWS
    train(f"signs.{suffix}", "number", "--categorical", "price", "share", "day")
    assert "holds" not in capsys.readouterr().err
