"""File formats: CSV, JSON, Parquet, Arrow."""
