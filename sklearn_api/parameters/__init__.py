"""Constructor parameters and arguments of `fit`: names, values, descriptions."""
