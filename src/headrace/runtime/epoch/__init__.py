"""Epochs of all queries (cycles of reading, computing and committing): run, committed, and retried after a failure, in a
loop; with the pushes of programs, retention and garbage collection.
"""
