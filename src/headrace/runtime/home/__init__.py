"""The home, the folder with everything that is durable: its logs and catalog, the names of its files and a cache of what
was read; and helpers for caches, garbage collection, imports and the division of slots.
"""
