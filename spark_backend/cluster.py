"""A Spark application for the time of one fit: its slots, what is broadcast to it, what it keeps, jobs in a thread.

Everything handed to Spark here is taken back by `close`, whatever happened.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from dmlgbm.spark_backend.frames import require_classic


class SparkCluster:
    """The executors of the session that a frame belongs to."""

    def __init__(self, frame: Any, fit_id: str) -> None:
        require_classic(frame)
        self.context = frame.sparkSession.sparkContext
        self.fit_id = fit_id
        self._broadcasts: list[Any] = []
        self._kept: list[Any] = []
        if self.setting("spark.dynamicAllocation.enabled", "false") == "true":
            raise ValueError(
                "fit needs all its executors at once, and Spark does not start such a (barrier) stage while "
                "spark.dynamicAllocation.enabled is true: set it to false, with spark.executor.instances."
            )

    def setting(self, name: str, default: str) -> str:
        """A setting of the application."""
        return str(self.context.getConf().get(name, default))

    def slots(self) -> int:
        """How many tasks can run at the same time now."""
        scala = self.context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))

    def hosts(self) -> list[str]:
        """The addresses of the executors, and of the driver."""
        return str(self.context._jsc.sc().getExecutorMemoryStatus().keys().mkString(" ")).split()

    def share(self, value: Any) -> Any:
        """A value that reaches every executor once."""
        broadcast = self.context.broadcast(value)
        self._broadcasts.append(broadcast)
        return broadcast

    def keep(self, rdd: Any) -> Any:
        """Let Spark keep what an RDD computes, in memory or on disk, until `drop`."""
        from pyspark import StorageLevel

        self._kept.append(rdd)
        return rdd.persist(StorageLevel.MEMORY_AND_DISK)

    def drop(self, rdd: Any) -> None:
        """Give back the room of an RDD; where it is needed once more it is computed again."""
        if rdd in self._kept:
            self._kept.remove(rdd)
            rdd.unpersist()

    def close(self) -> None:
        # Spark may be gone by now; then nothing is kept either.
        with contextlib.suppress(Exception):
            for rdd in self._kept:
                rdd.unpersist()
        with contextlib.suppress(Exception):
            for broadcast in self._broadcasts:
                broadcast.destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class BackgroundJob:
    """A Spark action in a thread of its own, so that the thread of the user can follow it and end it."""

    def __init__(self, cluster: SparkCluster, action: Callable[[], Any], group: str, description: str) -> None:
        from pyspark import InheritableThread

        self._context = cluster.context
        self._group = group
        self._description = description
        self._action = action
        self._value: Any = None
        self._error: Exception | None = None
        self._thread: threading.Thread = InheritableThread(target=self._run, name=group, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def succeeded(self) -> bool:
        return self.done and self._error is None

    def result(self) -> Any:
        """What the action returned; its error is raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self, patience: float = 30.0) -> None:
        """End the job and wait until Spark has let go of it."""
        with contextlib.suppress(Exception):
            self._context.cancelJobGroup(self._group)
        self._thread.join(patience)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            self._value = self._action()
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
