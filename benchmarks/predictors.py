"""Predictors that run a model somebody else trained: a LightGBM model of the same settings in onnxruntime or lleaves.

Fit is LightGBM's own; what differs is who predicts. The model is exported at the first prediction, which no clock sees.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.peers import SYSTEMS, LightGBM, Settings, System
from benchmarks.tasks import Task

if TYPE_CHECKING:
    from benchmarks.datasets import Array, Features


class ExportedLightGBM(LightGBM):
    """Exports the model it was last asked to predict with, and keeps it until another comes."""

    runtime: ClassVar[str]

    def __init__(self) -> None:
        self._source: Any = None
        self._exported: Any = None

    def load(self) -> None:
        super().load()
        __import__(self.runtime)

    def export(self, model: Any, settings: Settings) -> Any:
        raise NotImplementedError

    def run(self, exported: Any, features: Features, settings: Settings, task: Task) -> Array:
        raise NotImplementedError

    def predict(self, model: Any, features: Features, settings: Settings, task: Task) -> Array:
        if self._source is not model:
            self._source, self._exported = model, self.export(model, settings)
        return self.run(self._exported, features, settings, task)


class OnnxRuntime(ExportedLightGBM):
    title = "onnxruntime"
    runtime = "onnxruntime"

    def prepare(self, features: Features) -> Features:
        """The graph takes single precision only."""
        import numpy as np

        return np.ascontiguousarray(features, dtype=np.float32)

    def export(self, model: Any, settings: Settings) -> Any:
        import onnxmltools
        import onnxruntime
        from onnxmltools.convert.common.data_types import FloatTensorType

        shape = FloatTensorType([None, model.n_features_in_])
        graph = onnxmltools.convert_lightgbm(model, initial_types=[("features", shape)], zipmap=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(self, exported: Any, features: Features, settings: Settings, task: Task) -> Array:
        result: Array = exported.run(None, {"features": features})[-1]
        return result if task in ("binary", "multiclass") else result.ravel()


class Lleaves(ExportedLightGBM):
    title = "lleaves"
    runtime = "lleaves"

    def export(self, model: Any, settings: Settings) -> Any:
        import lleaves

        with tempfile.TemporaryDirectory(prefix="dmlgbm-lleaves-") as folder:
            file = Path(folder) / "model.txt"
            model.booster_.save_model(str(file))
            compiled = lleaves.Model(model_file=str(file))
            compiled.compile()
        return compiled

    def run(self, exported: Any, features: Features, settings: Settings, task: Task) -> Array:
        import numpy as np

        result: Array = exported.predict(features, n_jobs=settings.threads)
        return np.column_stack([1.0 - result, result]) if task == "binary" else result


PREDICTORS: dict[str, System] = {"onnxruntime": OnnxRuntime(), "lleaves": Lleaves()}
EVERY_SYSTEM: dict[str, System] = {**SYSTEMS, **PREDICTORS}
