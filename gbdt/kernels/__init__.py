"""Compiled loops of the engine: pure functions of numpy arrays, one family of hot loops a file."""
