"""Pathway, a Python framework on a Rust engine of differential dataflow."""
