"""Time windows over panes and rows."""
