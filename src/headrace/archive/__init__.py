"""The past: runs, random blocks, resolutions, compaction and retention."""
