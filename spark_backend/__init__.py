"""The learner on Spark: rows binned by Spark's tasks, ranks in a barrier stage, recovery, prediction by an Arrow UDF.

It knows the ranks, the engine and the communication layer, not the estimators: what those know (how to read a
partition, how to predict a block) comes in as functions. No object of this package outlives a call of `fit`.
"""
