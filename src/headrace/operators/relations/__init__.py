"""Relations at every instant, made of intervals."""
