"""Other stream processors, each run by its own script in its own pinned environment."""
