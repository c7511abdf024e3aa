"""DuckDB, asked about one window at a time."""
