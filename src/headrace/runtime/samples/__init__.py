"""Files for many epochs of an archive: samples of runs, which questions read first, and runs joined in one file."""
