"""Caches of subresults in the pipelines of a join of many windows: which are possible, what they gain, and which to use."""
