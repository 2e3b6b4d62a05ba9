"""How trees become a model: the boosting loop, evaluation, early stopping and training in stages."""
