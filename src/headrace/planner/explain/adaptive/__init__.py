"""EXPLAIN ADAPTIVE as text and as a picture over time."""
