"""The scan tasks and state tasks of an epoch, as a worker runs them."""
