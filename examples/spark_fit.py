"""Train on the executors of a Spark session, compare with a local fit of the same rows, predict as a column.

Needs the extra `spark` and Java 17.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from sklearn.datasets import load_breast_cancer

from dmlgbm import DMLGBMClassifier


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors run the interpreter of the driver
    table = load_breast_cancer(as_frame=True).frame
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.createDataFrame(table)

    model = DMLGBMClassifier(n_estimators=20).fit(frame, "target")
    print(f"{model.fit_report_.n_ranks} ranks trained {model.n_iter_} iterations: {model.fit_report_}")

    local = DMLGBMClassifier(n_estimators=20).fit(table.drop(columns="target"), table["target"])
    print("Same bytes as a local fit:", model.booster_.to_bytes() == local.booster_.to_bytes())

    predicted: Any = model.predict_proba(model.predict(frame))
    predicted.select("target", "prediction", "probability").show(3, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
