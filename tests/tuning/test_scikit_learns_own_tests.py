"""scikit-learn's own tests of its searches pass with our classes in their place.

They run in a pytest of their own, into which `injection.py` is loaded before the test modules are imported; the count
it prints proves that our `fit` ran.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SEARCH, HALVING = "sklearn.model_selection.tests.test_search", "sklearn.model_selection.tests.test_successive_halving"
QUICK = (
    "grid_search_error or trivial or no_refit or random_search_cv_results or select_best_index or top_k or input_errors"
)
# These compare objects, or look at the call stack, of the test's own process: fits elsewhere cannot pass.
SAME_PROCESS = ("test_multi_metric_search_forwards_metadata", "test_search_callbacks_receive_search_instance")


def _run(backend: str, modules: list[str], *options: str) -> dict[str, int]:
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "SEARCH_BACKEND": backend,
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parent.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "injection", "-p", "no:cacheprovider", "-q"]
    finished = subprocess.run(
        [*command, *options, "--pyargs", *modules],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    counted = next(line for line in finished.stdout.splitlines() if line.startswith("injected: "))
    return ast.literal_eval(counted.removeprefix("injected: "))


def test_a_quick_part_passes_in_this_process() -> None:
    ran = _run("local", [SEARCH, HALVING], "-k", QUICK)
    assert ran["fits"] > 5
    assert ran["calls"] > 100


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_pass_on_the_local_backend() -> None:
    ran = _run("local", [SEARCH, HALVING])
    assert ran["fits on local"] > 200
    assert ran["calls"] > 9_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_pass_on_dask() -> None:
    ran = _run("dask", [SEARCH, HALVING], "-k", " and ".join(f"not {name}" for name in SAME_PROCESS))
    assert ran["fits on dask"] > 200
    assert ran["calls"] > 9_000
