"""Baselines and Sparklog in one process and one run; `python -m benchmarks --help`."""
