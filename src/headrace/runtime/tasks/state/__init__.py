"""State tasks: an epoch's deltas are merged with stored state, windows close, results are written and state is compacted;
and provisional results, which are not written.
"""
