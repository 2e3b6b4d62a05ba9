"""Where ranks run: threads or processes of this machine, or the workers of a cluster.

Every place does the same: it gives each rank a communicator and a shard, calls `neural.training.train`, and, when
ranks are lost, starts the remaining ones from the last commit (`dmlgbm.neural.running.generations`).
"""
