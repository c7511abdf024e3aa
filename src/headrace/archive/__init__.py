"""Archive of streams: runs, random blocks, resolutions, compaction and retention."""
