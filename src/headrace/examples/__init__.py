"""Examples that are installed with the package."""
