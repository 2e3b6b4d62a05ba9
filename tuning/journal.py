"""Results on disk, so that a search can go on after its client or its cluster was lost.

A journal is a text file of JSON lines: first what the search is about (fingerprints of data, estimator, scoring and
options), then one line a finished call. Numbers survive exactly: JSON writes the shortest text that reads back to the
same float. A last line that was cut off is ignored; nothing in the file is ever executed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import joblib

from dmlgbm.tuning.calls import FitCall, FitResult, SharedArguments

_FORMAT = "dmlgbm search journal 1"
_SCORES = ("test_scores", "train_scores")
_NUMBERS = ("n_test_samples", "fit_time", "score_time")
# What changes neither results nor their meaning.
_IRRELEVANT = ("verbose", "return_times", "return_n_test_samples", "return_parameters")


class JournalError(ValueError):
    """The journal cannot be used for this search; the message says why."""


class FileJournal:
    """The journal of one search, open for reading and writing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: IO[str] | None = None
        self._known: dict[str, FitResult] = {}

    def open(self, shared: SharedArguments) -> None:
        """Read what is there, or start a new journal; a journal of another search is an error."""
        if shared.arguments.get("return_estimator"):
            raise JournalError("journal cannot keep fitted estimators: use return_estimator=False.")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"journal={str(self._path)!r} is being written by another search.") from error
        subject = _subject(shared)
        lines = self._complete_lines()
        if lines:
            self._require_same(lines[0], subject)
            for number, line in enumerate(lines[1:], 2):
                if not isinstance(line, dict) or not isinstance(line.get("result"), dict) or "key" not in line:
                    raise JournalError(f"journal={str(self._path)!r} has no result in line {number}.")
                self._known[line["key"]] = line["result"]
        else:
            self._write({"format": _FORMAT, "subject": subject})

    def recall(self, call: FitCall) -> FitResult | None:
        """The result of an earlier run, if there is one."""
        return self._known.get(call_key(call))

    def record(self, call: FitCall, result: FitResult) -> None:
        """Keep a result; it is on the disk when this returns."""
        entry = {"fit_error": result["fit_error"]}
        entry |= {name: _plain_scores(result[name]) for name in _SCORES if name in result}
        entry |= {name: _plain(result[name]) for name in _NUMBERS if name in result}
        self._write({"key": call_key(call), "parameters": _shown(call.parameters), "fold": call.fold, "result": entry})

    def close(self) -> None:
        """Let others use the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _complete_lines(self) -> list[dict[str, Any]]:
        assert self._file is not None
        self._file.seek(0)
        text = self._file.read()
        complete = text[: text.rfind("\n") + 1]
        if len(complete) < len(text):  # the writer died in the middle of a line
            self._file.truncate(len(complete.encode()))
        self._file.seek(0, os.SEEK_END)
        try:
            return [json.loads(line) for line in complete.splitlines()]
        except json.JSONDecodeError as error:
            raise JournalError(f"journal={str(self._path)!r} is not a search journal: {error}.") from error

    def _require_same(self, head: Any, subject: Mapping[str, str]) -> None:
        if not isinstance(head, dict) or head.get("format") != _FORMAT or not isinstance(head.get("subject"), dict):
            raise JournalError(f"journal={str(self._path)!r} is not a search journal of this version.")
        written = head["subject"]
        changed = [name for name, fingerprint in subject.items() if written.get(name) != fingerprint]
        changed += [name for name in written if name not in subject]
        if changed:
            raise JournalError(
                f"journal={str(self._path)!r} belongs to another search: {', '.join(changed)} changed. Name another "
                "file, or delete this one to start anew."
            )


def call_key(call: FitCall) -> str:
    """Stands for a candidate on the rows of a fold, in any run of the search."""
    return f"{fingerprint(call.parameters, 'the parameters of a candidate')}-{call.split}"


def fingerprint(value: Any, name: str) -> str:
    """A digest of a value that is the same in every process."""
    try:
        return str(joblib.hash(value))
    except Exception as error:
        raise JournalError(f"journal needs a fingerprint of {name}, which cannot be pickled: {error}.") from error


def _subject(shared: SharedArguments) -> dict[str, str]:
    arguments = {name: value for name, value in shared.arguments.items() if name not in _IRRELEVANT}
    arguments["scoring"] = arguments.pop("scorer")
    options = {name: fingerprint(value, name) for name, value in arguments.items()}
    return {"X": fingerprint(shared.X, "X"), "y": fingerprint(shared.y, "y"), **_estimator(shared.estimator), **options}


def _estimator(estimator: Any) -> dict[str, str]:
    # Where a search inside this one runs says nothing about its results.
    left_out = getattr(estimator, "parameters_of_this_process", ())
    own = {name: value for name, value in estimator.get_params(deep=False).items() if name not in left_out}
    return {
        "estimator": f"{type(estimator).__module__}.{type(estimator).__qualname__}",
        **{f"estimator's {name}": fingerprint(value, name) for name, value in own.items()},
    }


def _plain_scores(scores: Any) -> Any:
    return {name: _plain(score) for name, score in scores.items()} if isinstance(scores, Mapping) else _plain(scores)


def _plain(number: Any) -> Any:
    return number.item() if hasattr(number, "item") else number


def _shown(parameters: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: repr(value)[:200] for name, value in (parameters or {}).items()}
