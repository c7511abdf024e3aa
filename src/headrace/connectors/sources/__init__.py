"""Sources: listing on the driver, reading in the task."""
