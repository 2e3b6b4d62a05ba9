"""Parts and sums of models predict parts and sums of scores, and listings hold all that a model does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmlgbm
from dmlgbm import Booster, Dataset, DMLGBMRegressor

RANDOM = np.random.default_rng(12)
FRAME = pd.DataFrame(
    {
        "text": RANDOM.choice(["a", "b", "c", "d"], 400),
        "number": RANDOM.normal(size=400),
        "gaps": np.where(RANDOM.random(400) < 0.3, np.nan, RANDOM.normal(size=400)),
    }
)
SIGNAL = FRAME["number"] * (FRAME["text"] == "a") + FRAME["gaps"].isna() * 2 + 5
THREE = np.digitize(SIGNAL, [4.5, 6.0])
SMALL = {"num_leaves": 6, "min_child_samples": 5}
MODELS = {
    "regression": dmlgbm.train(SMALL, Dataset(FRAME, SIGNAL), 10),
    "multiclass": dmlgbm.train(SMALL | {"objective": "multiclass", "num_class": 3}, Dataset(FRAME, THREE), 10),
}


def raw(model: Booster) -> Any:
    return model.predict(FRAME, raw_score=True)


@pytest.mark.parametrize("kind", MODELS)
def test_slices_predict_their_iterations_and_add_up_to_the_model(kind: str) -> None:
    model = MODELS[kind]
    np.testing.assert_array_equal(raw(model[2:5]), model.predict(FRAME, 2, 3, raw_score=True))
    np.testing.assert_array_equal(raw(model[:4]), model.predict(FRAME, 0, 4, raw_score=True))
    assert model[:] == model[:4] + model[4:] == dmlgbm.merge(model[:4], model[4:9], model[9]) == model
    assert (model[-1], [each.current_iteration() for each in model]) == (model[9:], [1] * 10)
    assert model[::3].num_trees() == 4 * model.num_model_per_iteration()
    np.testing.assert_allclose(raw(model[::2]) + raw(model[1::2]), raw(model), rtol=1e-12)
    for impossible in (slice(5, 5), slice(None, None, -1), slice(10, None)):
        with pytest.raises(ValueError, match="must hold one at least"):
            model[impossible]
    for outside in (10, -11):
        with pytest.raises(IndexError, match=f"iteration {outside} is out of range: there are 10, from 0 on"):
            model[outside]


@pytest.mark.parametrize("kind", MODELS)
def test_raw_scores_of_merged_models_are_sums(kind: str) -> None:
    one, other = MODELS[kind], MODELS[kind][3:]
    np.testing.assert_allclose(raw(one + other), raw(one) + raw(other), rtol=1e-12)
    assert (one + one).base_scores.tolist() == (2 * one.base_scores).tolist()


def test_merged_model_has_what_its_parts_predict_with_after_early_stopping() -> None:
    data = Dataset(FRAME, SIGNAL)
    stopped = dmlgbm.train(
        {"learning_rate": 0.9},
        data,
        100,
        data.create_valid(FRAME[:40], SIGNAL[:40] + RANDOM.normal(size=40)),
        callbacks=[dmlgbm.early_stopping(2, verbose=False)],
    )
    assert 0 < stopped.best_iteration < stopped.current_iteration()
    np.testing.assert_array_equal(raw(dmlgbm.merge(stopped)), raw(stopped))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (MODELS["multiclass"], "its objective is 'multiclass', not 'regression'"),
        (dmlgbm.train({}, Dataset(FRAME[["text", "number"]], SIGNAL), 1), "it has 2 columns, not 3"),
        (dmlgbm.train({}, Dataset(FRAME[["number", "text", "gaps"]], SIGNAL), 1), "other names, or another order"),
        (dmlgbm.train({}, Dataset(FRAME[FRAME["text"] != "a"], SIGNAL[FRAME["text"] != "a"]), 1), "'text' has other"),
    ],
)
def test_models_that_do_not_fit_are_not_merged(other: Booster, message: str) -> None:
    with pytest.raises(ValueError, match=f"Booster 1 cannot be merged with the first one: .*{message}"):
        dmlgbm.merge(MODELS["regression"], other)
    with pytest.raises(TypeError, match="merge takes one Booster or more"):
        dmlgbm.merge(MODELS["regression"], DMLGBMRegressor())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write merge\(\*boosters\)"):
        dmlgbm.merge([MODELS["regression"], MODELS["regression"]])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unsupported operand"):
        MODELS["regression"] + 1  # type: ignore[operator]


def leaf_of_row(structure: dict[str, Any], row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    while "left_child" in structure:
        value, threshold = row[names[structure["split_feature"]]], structure["threshold"]
        if value != value:
            left = structure["default_left"]
        elif structure["decision_type"] == "==":
            left = value in threshold.split("||")
        else:
            left = value <= threshold
        structure = structure["left_child" if left else "right_child"]
    return structure


@pytest.mark.parametrize("kind", MODELS)
def test_dumped_model_is_json_and_predicts_what_the_model_does(kind: str) -> None:
    model = MODELS[kind]
    dumped = json.loads(json.dumps(model.dump_model(), allow_nan=False))
    leaves = model.predict(FRAME, pred_leaf=True)
    size, names = dumped["num_tree_per_iteration"], dumped["feature_names"]
    for number, row in enumerate(FRAME[:60].to_dict("records")):
        scores = np.array(dumped["base_scores"])
        for tree in dumped["tree_info"]:
            leaf = leaf_of_row(tree["tree_structure"], row, names)
            assert leaf["leaf_index"] == leaves[number, tree["tree_index"]]
            assert leaf["leaf_value"] == model.get_leaf_output(tree["tree_index"], leaf["leaf_index"])
            scores[tree["tree_index"] % size] += leaf["leaf_value"]
        np.testing.assert_allclose(scores, np.atleast_2d(raw(model).T)[:, number], rtol=1e-12)
    part = model.dump_model(num_iteration=2, start_iteration=1)
    assert part["tree_info"] == dumped["tree_info"][size : 3 * size]
    assert dumped["feature_importances"] == {
        name: n for name, n in zip(names, model.feature_importance().tolist(), strict=True) if n
    }


def test_frame_of_trees_says_what_the_dump_says() -> None:
    model = MODELS["regression"]
    frame = model.trees_to_dataframe()
    assert frame.equals(model.trees_to_frame())
    assert len(frame) == sum(2 * tree.n_nodes + 1 for tree in model.trees)
    by_index = frame.set_index("node_index")

    def check(structure: dict[str, Any], name: str, depth: int, parent: str | None) -> None:
        row = by_index.loc[name]
        assert row["node_depth"] == depth
        assert row["parent_index"] == parent if parent else pd.isna(row["parent_index"])
        if "leaf_index" in structure:
            assert [row["value"], row["weight"], row["count"]] == [
                structure[key] for key in ("leaf_value", "leaf_weight", "leaf_count")
            ]
            return
        assert row["missing_direction"] == ("left" if structure["default_left"] else "right")
        assert row["split_feature"] == FRAME.columns[structure["split_feature"]]
        children = [by_index.loc[row[side]] for side in ("left_child", "right_child")]
        assert row["count"] == sum(child["count"] for child in children) == structure["internal_count"]
        mean = sum(child["value"] * child["weight"] for child in children) / sum(child["weight"] for child in children)
        assert row["value"] == pytest.approx(mean)
        check(structure["left_child"], row["left_child"], depth + 1, name)
        check(structure["right_child"], row["right_child"], depth + 1, name)

    for number, tree in enumerate(model.dump_model()["tree_info"]):
        check(tree["tree_structure"], f"{number}-S0", 1, None)


def test_tree_without_splits_is_a_leaf() -> None:
    model = dmlgbm.train({"min_child_samples": 300}, Dataset(FRAME, SIGNAL), 1)
    frame = model.trees_to_dataframe()
    assert (frame["node_index"].tolist(), frame["count"].tolist()) == (["0-L0"], [400])
    assert model.dump_model()["tree_info"][0]["tree_structure"]["leaf_count"] == 400


def test_leaf_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="tree_id=10 is out of range: there are 10"):
        MODELS["regression"].get_leaf_output(10, 0)
    with pytest.raises(ValueError, match="leaf_id=6 is out of range: there are 6"):
        MODELS["regression"].get_leaf_output(0, 6)


@pytest.mark.parity
def test_listings_have_lightgbms_columns_and_keys() -> None:
    import lightgbm

    X = FRAME[["number", "gaps"]]
    peer = lightgbm.train({"verbose": -1, "num_leaves": 6, "min_data_in_bin": 1}, lightgbm.Dataset(X, SIGNAL), 3)
    model = dmlgbm.train({"num_leaves": 6}, Dataset(X, SIGNAL), 3)
    theirs, ours = peer.trees_to_dataframe(), model.trees_to_dataframe()
    assert theirs.columns.tolist() == ours.columns.tolist()
    for name in ("node_depth", "split_feature", "decision_type", "count"):
        assert theirs[name].fillna("").tolist() == ours[name].fillna("").tolist(), name
    # They add the average that training starts from to the first tree.
    later = theirs["tree_index"] > 0
    np.testing.assert_allclose(ours["value"][later], theirs["value"][later], rtol=1e-4, atol=1e-6)
    dumped = model.dump_model()
    split = peer.dump_model()["tree_info"][0]["tree_structure"].keys()
    assert split == dumped["tree_info"][0]["tree_structure"].keys()
