"""Studies that repeat the paper and compare its figures with ours. See ``studies/README.md``."""
