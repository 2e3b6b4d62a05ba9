"""Rank the documents of 600 generated queries; the last 100 are watched, and stop training when NDCG@5 stalls."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from dmlgbm import DMLGBMRanker

N_QUERIES, N_DOCUMENTS, N_TRAIN = 600, 20, 500


def main() -> None:
    random = check_random_state(0)
    n_rows = N_QUERIES * N_DOCUMENTS
    X = random.normal(size=(n_rows, 10))
    merit = X[:, 0] + X[:, 1] * X[:, 2] + random.normal(size=n_rows)
    # Grades 0 to 3; half of the documents are irrelevant.
    grade = np.digitize(merit, [0.0, 1.0, 2.0])
    query = np.repeat(np.arange(N_QUERIES), N_DOCUMENTS)
    train, test = query < N_TRAIN, query >= N_TRAIN

    model = DMLGBMRanker(n_estimators=200, num_leaves=15, early_stopping=True, eval_at=(5, 10))
    model.fit(X[train], grade[train], qid=query[train], eval_set=[(X[test], grade[test])], eval_qid=[query[test]])
    for metric, values in model.evals_result_["valid_0"].items():
        print(f"{metric}: {values[0]:.3f} after one iteration, {max(values):.3f} at its best")

    first = np.flatnonzero(query == N_TRAIN)
    order = np.argsort(-model.predict(X[first]), kind="stable")
    print(f"Grades of the first held-out query, best position first: {grade[first][order].tolist()}")


if __name__ == "__main__":
    main()
