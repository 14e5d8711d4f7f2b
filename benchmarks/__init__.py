"""Benchmarks of speed and memory. See ``python -m benchmarks --help``."""
