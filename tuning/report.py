"""What a search asked for, what was run for it, and what was saved: `search_report_`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SearchReport:
    """Numbers about one `fit` of a search."""

    backend: str = ""
    n_slots: int = 1
    """Fits that could run at once."""
    calls_asked: int = 0
    """(candidate, fold) pairs that scikit-learn asked for."""
    calls_answered: int = 0
    """Pairs that were computed in this fit."""
    calls_from_journal: int = 0
    calls_not_run: int = 0
    """Pairs left out because the search was stopped."""
    units: int = 0
    """Groups of calls that ran together."""
    units_lost: int = 0
    """Units that ran again, or were given up, because their worker was lost."""
    counters: Counter[str] = field(default_factory=Counter)
    """What runners did and saved: "fits" and, for estimators that share work, trees grown and saved, folds binned."""
    bytes_placed: int = 0
    bytes_of_units: int = 0
    seconds: float = 0.0
    """From the start of `fit` to the last result, without the refit."""
    seconds_of_work: float = 0.0
    """Time that workers spent in units, all together."""
    stopped: str | None = None
    """Why the search ended early: "time_budget" or "Ctrl-C"."""
    notes: list[str] = field(default_factory=list)
    """What may surprise: why "auto" chose its backend, why work could not be shared."""
    finished_at: list[float] = field(default_factory=list)
    """For each row of `cv_results_`, the second at which its last fold was there; not a number where it was not."""

    def __str__(self) -> str:
        lines = [
            f"{self.calls_asked} fits asked for on backend {self.backend!r} with {self.n_slots} at once",
            f"{self.calls_answered} answered by {self.units} units in {self.seconds:.2f} s",
        ]
        optional = {
            "from the journal": self.calls_from_journal,
            "not run": self.calls_not_run,
            "units lost with their workers": self.units_lost,
            **{name.replace("_", " "): count for name, count in sorted(self.counters.items())},
        }
        lines += [f"{count} {name}" for name, count in optional.items() if count]
        if self.stopped is not None:
            lines.append(f"stopped early by {self.stopped}")
        return "\n".join(lines + self.notes)
