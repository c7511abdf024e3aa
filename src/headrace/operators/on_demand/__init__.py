"""State for INVOKE: selections as bitmaps, and shorter windows."""
