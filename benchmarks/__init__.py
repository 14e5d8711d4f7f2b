"""Speed and memory beside what a user would write instead; ``python -m benchmarks --help``."""
