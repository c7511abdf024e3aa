"""The kernels: pure functions from Arrow and state to Arrow and state; one per file."""
