"""Backfills of new and resumed queries, between live epochs, from the archive or from panes of other queries: their
schedule and their start; and readers of the archive and the completeness of queries.
"""
