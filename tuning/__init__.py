"""Hyper-parameter search that keeps scikit-learn's `fit` and takes over where, and how often, models are trained."""
