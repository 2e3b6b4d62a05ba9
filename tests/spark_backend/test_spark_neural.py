"""Neural models on Spark frames train to the weights of a local fit, wherever rows lie and whatever is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dying_models import DyingClassifier
from spark_tables import on_spark

from dmlgbm.neural import DMLLinearRegressor, DMLMLPClassifier

# The first fit may have to wait for a Java machine, and for workers that compile.
pytestmark = pytest.mark.timeout(400)

SETTINGS = {"max_epochs": 5, "batch_size": 60, "dtype": "float64", "random_state": 0}
FEATURES = ["a.b", "narrow", "whole"]
BOUNDS = (0, 0, 1, 200, 210, 600, 600)


def table(n_rows: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a.b": rng.normal(size=n_rows),
            "narrow": rng.normal(size=n_rows).astype(np.float32),
            "whole": rng.integers(-2, 3, n_rows),
        }
    )
    label = np.where(X["a.b"] + X["narrow"] ** 2 > 1, "yes", "no")
    return X.assign(label=label, value=X["a.b"] - X["whole"], weight=np.arange(n_rows) % 4 / 2)


def test_ranks_in_a_barrier_stage_end_with_the_weights_of_a_local_fit(spark: Any) -> None:
    rows = table()
    frame = on_spark(spark, rows.drop(columns=["value"]), BOUNDS)
    changes = {"hidden_layer_sizes": (8,), "batch_norm": True, "early_stopping": True}
    local = DMLMLPClassifier(**SETTINGS, **changes).fit(rows[FEATURES], rows["label"], rows["weight"])
    model = DMLMLPClassifier(**SETTINGS, **changes).fit(frame, "label", "weight")
    assert model.history_.n_ranks == 2
    np.testing.assert_allclose(model.parameters_, local.parameters_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.history_["score"], local.history_["score"])
    np.testing.assert_array_equal(model.classes_, ["no", "yes"])
    np.testing.assert_array_equal(model.feature_names_in_, FEATURES)
    found = model.predict_proba(model.predict(frame)).toPandas()
    np.testing.assert_array_equal(found["prediction"], local.predict(rows[FEATURES]))
    np.testing.assert_allclose(np.stack(found["probability"]), local.predict_proba(rows[FEATURES]), atol=1e-9)
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "what the fit kept must be given back"


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"strategy": "parameter_server", "compression": "int8"}, {"strategy": "local_sgd", "n_ranks": 1}],
    ids=str,
)
def test_strategies_and_values_work_on_spark(spark: Any, changes: dict[str, Any]) -> None:
    rows = table()
    frame = on_spark(spark, rows.drop(columns=["label", "weight"]), 3)
    model = DMLLinearRegressor(**{**SETTINGS, "max_epochs": 20, "backend": "spark", **changes}).fit(frame, "value")
    assert model.history_.n_ranks == changes.get("n_ranks", 2)
    predicted = model.predict(frame).toPandas()
    assert np.corrcoef(predicted["prediction"], predicted["value"])[0, 1] > 0.99


def test_what_is_wrong_with_a_frame_is_said_in_words(spark: Any) -> None:
    rows = table()
    frame = on_spark(spark, rows.drop(columns=["value", "weight"]), 2)
    with pytest.raises(ValueError, match="y='missing' is not a column of X"):
        DMLMLPClassifier().fit(frame, "missing")
    with pytest.raises(ValueError, match="eval_set is for rows in this process"):
        DMLMLPClassifier().fit(frame, "label", eval_set=(rows[FEATURES], rows["label"]))
    with pytest.raises(ValueError, match="backend must be one of auto, spark"):
        DMLMLPClassifier(backend="threads").fit(frame, "label")
    gap = rows[FEATURES].assign(label=rows["label"])
    gap.loc[450, "a.b"] = np.nan
    with pytest.raises(ValueError, match="partition 1: Input X contains NaN"):
        DMLMLPClassifier().fit(on_spark(spark, gap, 2), "label")
    with pytest.raises(ValueError, match="strategy 'tensor' needs all rows on every rank"):
        DMLMLPClassifier(strategy="tensor").fit(frame, "label")


@pytest.mark.fault
def test_a_killed_rank_costs_an_epoch_and_not_the_fit(spark: Any, tmp_path: Path) -> None:
    rows = table()
    frame = on_spark(spark, rows[[*FEATURES, "label"]], 2)
    local = DMLMLPClassifier((8,), **SETTINGS).fit(rows[FEATURES], rows["label"])
    model = DyingClassifier((8,), **SETTINGS)
    model.marker = tmp_path / "died"
    model.fit(frame, "label")
    assert model.marker.exists()
    assert len(model.history_.losses) == 1
    assert "after 2 epochs" in model.history_.losses[0]
    np.testing.assert_allclose(model.parameters_, local.parameters_, rtol=0, atol=1e-9)
