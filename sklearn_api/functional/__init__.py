"""LightGBM's functions beside the estimators: a `Dataset` that is binned once, `train`, `cv`.

Parameters mean what they mean to the estimator of their objective, and give the same bytes.
"""
