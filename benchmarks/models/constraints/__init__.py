"""Joins of many streams by constraints (k-constraints) over traces, with what bounds each of them."""
