"""Assembly of time windows from panes, and limits on how many of them one epoch emits."""
