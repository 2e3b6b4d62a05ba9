"""The engine: gradient-boosted trees over integer histograms, in one process, on numpy and numba alone.

A table is binned once (`dataset`), each iteration turns gradients into integers (`quantisation`), grows trees from them
(`grower`) and adds them to the scores (`training`); the result is a `Booster`.
"""
