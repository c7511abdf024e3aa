"""Correlated aggregates of one key at a time, as plain as can be: the yardstick of benchmarks, and what tests hold the fast ones against."""
