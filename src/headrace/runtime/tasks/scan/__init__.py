"""Scan tasks: rows are read, checked against promises and repetitions, archived, and folded into deltas of operators'
state.
"""
