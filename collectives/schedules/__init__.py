"""Who sends what to whom in which phase: pure functions of ranks and sizes that make programs, and their choice."""
