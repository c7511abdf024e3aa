"""INVOKE: the current answer of a query, whole or for a part of its window, with its caveats; and a reader of a home that
another process may write.
"""
