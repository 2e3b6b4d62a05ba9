"""Fits on Dask collections and Spark frames: partitions described, checked and handed to the learner."""
