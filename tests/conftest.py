"""Settings every test shares: how Hypothesis searches.

No example has a deadline, because the first call of a kernel compiles it. On a CI machine the examples are
the same in every run, so that a failure there can be repeated.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
