"""Settings every test shares: how Hypothesis searches, what Ctrl-C does, and which tests may start processes.

No example has a deadline, because the first call of a kernel compiles it. On a CI machine the examples are
the same in every run, so that a failure there can be repeated.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

from tests.reference.started_processes import pytest_collection_modifyitems, pytest_runtest_call, pytest_runtest_setup

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_call", "pytest_runtest_setup"]

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)
