"""From the groups of a window to results: HAVING to DISTINCT."""
