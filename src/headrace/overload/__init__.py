"""Overload: what a hub can take, when rows are dropped, of which queries, and the weight of those that are sampled."""
