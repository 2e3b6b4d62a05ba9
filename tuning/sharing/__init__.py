"""Work that calls of one search have in common, done once: folds prepared, runs taken further, pipeline steps fitted.

A call runs through scikit-learn's own function as ever; only the `fit` of its estimator is replaced, for that one
call, by one that looks for what earlier calls on this worker have left (`shared_fit.py`, `prefixes.py`,
`limited_cache.py`). Calls that gain from following one another are put into one unit (`planner.py`). Where anything is
in doubt, the estimator's own `fit` runs.
"""
