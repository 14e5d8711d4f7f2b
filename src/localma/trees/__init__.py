"""Boosted trees: bins of inputs, growth in a compiled kernel, sums of trees as records."""
