"""Messages between the driver and its tasks, and entries of what an epoch commits."""
