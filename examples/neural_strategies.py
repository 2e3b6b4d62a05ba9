"""Train one perceptron on two ranks in several ways, compare what each costs, and look at the history of a rank."""

from __future__ import annotations

from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dmlgbm import DMLMLPClassifier
from dmlgbm.neural import compare


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.3, random_state=0)

    alone = DMLMLPClassifier((64, 32), max_epochs=15, learning_rate=5e-3, random_state=0).fit(X_train, y_train)
    together = DMLMLPClassifier((64, 32), max_epochs=15, learning_rate=5e-3, random_state=0, n_ranks=2).fit(
        X_train, y_train
    )
    print(f"Accuracy on one rank {alone.score(X_test, y_test):.3f}, on two {together.score(X_test, y_test):.3f}")
    print(f"Largest difference between their weights: {abs(alone.parameters_ - together.parameters_).max():.1e}")
    waited = sum(together.history_.of_rank(1)["wait_seconds"])
    print(f"Rank 1 waited {waited:.2f} s of {sum(together.history_['seconds']):.2f} s")

    ways: dict[str, dict[str, Any]] = {
        "every step": {},
        "every step, int8": {"compression": "int8"},
        "two pieces a batch": {"strategy_options": {"accumulate": 2}},
    }
    estimator = DMLMLPClassifier((64, 32), max_epochs=15, learning_rate=5e-3, random_state=0, n_ranks=2)
    print(compare(estimator, X_train, y_train, ways, eval_set=(X_test, y_test), target=0.95))


if __name__ == "__main__":
    main()
