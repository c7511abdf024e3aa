"""The benchmarks themselves: one file each, with what it runs and what it has to show."""
