"""Readers of file formats (CSV, JSON, Parquet, Arrow), and the rendering of answers in a format."""
