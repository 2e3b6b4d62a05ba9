"""Search for parameters on two worker processes: a grid, and halving over the number of trees."""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer

from dmlgbm import DMLGBMClassifier, GridSearchCV, HalvingRandomSearchCV


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    grid = {"n_estimators": [10, 20, 40], "num_leaves": [4, 8]}
    search = GridSearchCV(DMLGBMClassifier(), grid, cv=3, n_jobs=2).fit(X, y)
    print(f"Best of the grid: {search.best_params_} with {search.best_score_:.4f}")
    print(search.search_report_)

    space = {"num_leaves": [3, 4, 6, 8, 12], "learning_rate": [0.05, 0.1, 0.2, 0.3]}
    halving = HalvingRandomSearchCV(
        DMLGBMClassifier(),
        space,
        n_candidates=9,
        resource="n_estimators",
        min_resources=5,
        max_resources=45,
        cv=3,
        random_state=0,
        n_jobs=2,
    ).fit(X, y)
    print(f"Best after halving: {halving.best_params_} with {halving.best_score_:.4f}")


if __name__ == "__main__":
    main()
