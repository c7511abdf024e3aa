"""Orders of filters over traces: A-Greedy as printed, and the ways with which it is compared."""
