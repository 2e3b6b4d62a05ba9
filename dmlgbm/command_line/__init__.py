"""The `dmlgbm` command: one file for each of its commands, started by `main`."""
