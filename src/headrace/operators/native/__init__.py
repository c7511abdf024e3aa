"""Kernels in C, compiled when the package is built, with the call of each; their numpy forms are their oracles."""
