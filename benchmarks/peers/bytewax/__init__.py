"""Bytewax, a Python stream processor with a Rust core."""
