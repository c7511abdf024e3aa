"""Reading of committed results from manifests and result runs, in the order of emission."""
