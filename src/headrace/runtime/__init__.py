"""Tasks, epochs, and what a program holds; `spark` is the only folder that knows Spark."""
