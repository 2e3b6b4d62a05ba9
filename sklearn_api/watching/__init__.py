"""What is measured while a model learns: evaluation sets, metrics, early stopping, other libraries' callbacks."""
