"""The catalog: definitions of streams, relations, queries with their actions, functions and windows, and their form in
the query log.
"""
