"""Input that waits for an epoch."""
