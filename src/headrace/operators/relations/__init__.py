"""Relations at every instant, from intervals in which rows hold."""
