"""The learner over ranks, wherever these run: the parallel modes, what ranks tell each other, checkpoints.

It knows the engine and the communication layer, no cluster: `dask_backend` and `spark_backend` start the ranks.
"""
