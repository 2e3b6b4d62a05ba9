"""Train on the workers of a Dask cluster, compare with a local fit of the same rows, predict lazily."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
from distributed import Client, LocalCluster
from sklearn.datasets import load_breast_cancer

from dmlgbm import DMLGBMClassifier


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        lazy_X, lazy_y = dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4)
        model = DMLGBMClassifier(n_estimators=20).fit(lazy_X, lazy_y)
        print(f"{model.fit_report_.n_ranks} workers trained {model.n_iter_} iterations: {model.fit_report_}")

        local = DMLGBMClassifier(n_estimators=20).fit(X, y)
        print("Same bytes as a local fit:", model.booster_.to_bytes() == local.booster_.to_bytes())

        probabilities: Any = model.predict_proba(lazy_X)
        print(f"Lazy probabilities in {probabilities.npartitions} partitions; the first rows:")
        print(probabilities.head(3))


if __name__ == "__main__":
    main()
