"""State for INVOKE: selections as bitmaps, parts of windows."""
