"""Measurements of Headrace and its peers, on the same machine, over the same rows: `python -m benchmarks --help`."""
