"""Windows of time over panes."""
