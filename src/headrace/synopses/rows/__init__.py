"""The rows of a sliding window that can still matter."""
