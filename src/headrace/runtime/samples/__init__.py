"""Samples of archive runs: one file for many epochs, with the rows that questions read first."""
