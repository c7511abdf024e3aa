"""Windows with approximate answers within a stated bound, in little state."""
