"""The only folder that imports Spark: its session, jobs and DataFrames."""
