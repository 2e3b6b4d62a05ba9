"""How many threads a rank may use."""

from __future__ import annotations


def threads_of_rank(n_available: int, n_jobs: int | None) -> int:
    """The threads that are there, or fewer: negative numbers count from all of them, as in scikit-learn."""
    if n_jobs is None:
        return n_available
    return min(n_available, n_jobs) if n_jobs > 0 else max(1, n_available + 1 + n_jobs)
