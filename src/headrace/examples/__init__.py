"""Examples that are installed with the package: the data of the demo, and kinds of windows."""
