"""How many threads a task may use: its share of the worker it runs on."""

from __future__ import annotations

from dmlgbm.gbdt.system.cores import available_threads


def threads_of_task(n_tasks: int) -> int:
    """This task's share of the threads of its worker, or of this process, where `n_tasks` like it may run at once.

    On a worker the tasks that are running now are counted, so that a single large block gets all threads.
    """
    # Importing distributed takes a second: a task of the local schedulers does without.
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return max(1, available_threads() // max(1, n_tasks))
    running = max(1, worker.state.executing_count)
    return max(1, worker.state.nthreads // running)
