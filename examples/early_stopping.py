"""Stop when the log loss on watched digits no longer improves, follow it on the way, then go on from the best point."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dmlgbm import DMLGBMClassifier, log_evaluation, time_limit


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_known, X_test, y_known, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    X_train, X_watched, y_train, y_watched = train_test_split(X_known, y_known, test_size=0.2, random_state=0)

    model = DMLGBMClassifier(n_estimators=300, num_leaves=7, early_stopping=True, early_stopping_rounds=5)
    watched = [(X_watched, y_watched)]
    model.fit(X_train, y_train, eval_set=watched, callbacks=[log_evaluation(20), time_limit(60)])
    losses = model.evals_result_["valid_0"]["multi_logloss"]
    print(f"Best of {model.n_iter_} iterations: {model.best_iteration_}, log loss {min(losses):.4f}")
    print(f"Accuracy on the test rows: {model.score(X_test, y_test):.3f}")

    # Without an eval_set, a tenth of the rows is set aside, the same share of every class.
    alone = DMLGBMClassifier(n_estimators=300, num_leaves=7, early_stopping=True).fit(X_known, y_known)
    print(f"With rows set aside: {alone.best_iteration_} iterations, accuracy {alone.score(X_test, y_test):.3f}")

    more = DMLGBMClassifier(n_estimators=10, num_leaves=7).fit(X_train, y_train, init_model=model)
    print(f"Ten iterations on top of the best: {more.n_iter_}")


if __name__ == "__main__":
    main()
