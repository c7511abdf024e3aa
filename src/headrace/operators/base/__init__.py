"""The contract of operators, and what all of them are made of: batches, codes of groups, ranges."""
