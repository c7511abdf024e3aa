"""Measurements of a running hub for its observers: the plan with its costs, and the newest epochs."""
