"""Panes of time windows: their arithmetic, state, sealing and costs, and the bound of what a step may emit."""
