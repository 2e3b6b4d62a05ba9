"""The learner on a Dask cluster: placement, ranks, the parallel modes, recovery, prediction.

It knows the engine and the communication layer, not the estimators: what those know (how to read a partition, how
to predict a block) comes in as functions.
"""
