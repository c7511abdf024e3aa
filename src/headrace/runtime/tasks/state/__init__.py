"""State tasks: merging, closing windows, compaction."""
