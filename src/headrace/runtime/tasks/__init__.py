"""The tasks of an epoch, as a worker runs them."""
