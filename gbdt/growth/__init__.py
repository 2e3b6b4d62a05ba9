"""How one tree grows: gradients as integers, sampled rows, split rules, the growers and the values of leaves."""
