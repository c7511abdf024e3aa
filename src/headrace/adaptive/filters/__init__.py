"""Orders of the filters of a conjunction: their cost, and algorithms that keep a good one while data changes."""
