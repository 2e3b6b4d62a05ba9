"""Networks trained over the shared communication layer: models, strategies, ranks."""
