"""How windows of time are assembled from panes, and how many of them one epoch emits."""
