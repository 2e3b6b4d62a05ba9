"""Loops that run without the GIL: system calls on descriptors, rings in shared memory, reductions."""
