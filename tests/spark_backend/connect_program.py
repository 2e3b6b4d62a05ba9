"""What works and what is refused in a process of Spark Connect, told as one line of JSON.

A program of its own: the first session decides for the whole process whether pyspark is classic or Connect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from dmlgbm import DMLGBMClassifier, GridSearchCV
from dmlgbm.neural import DMLMLPClassifier


def refusal(call: Callable[[], Any]) -> list[str]:
    """The name and the text of the error that a call ends with."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any of them is told
        return [type(error).__name__, str(error)]
    return ["", ""]


def main() -> None:
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    X, y = make_classification(120, 4, random_state=0)
    model = DMLGBMClassifier(n_estimators=2).fit(X, y)

    def search(backend: Any) -> Any:
        return GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1]}, cv=2, backend=backend).fit(X, y)

    frame = session.createDataFrame([(0.5, 1.5, 0), (1.0, 2.0, 1)], "a double, b double, label int")
    told = {
        "session": f"{type(session).__module__}.{type(session).__qualname__}",
        "accuracy": model.score(X, y),
        "auto": search("auto").search_report_.backend,
        "given": refusal(lambda: search(session)),
        "named": refusal(lambda: search("spark")),
        "first": refusal(lambda: GridSearchCV(session, DecisionTreeClassifier(), {}, cv=2).fit(X, y)),
        "frame": refusal(lambda: DMLGBMClassifier().fit(frame, "label")),
        "predicted": refusal(lambda: model.predict(frame)),
        "neural": refusal(lambda: DMLMLPClassifier().fit(frame, "label")),
        "searched": refusal(lambda: GridSearchCV(model, {}, cv=2).fit(frame, "label")),
    }
    session.stop()
    told["stopped"] = search("auto").search_report_.backend
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
