"""What the user passes besides parameters, checked: columns, targets, labels, weights, rows set aside."""
