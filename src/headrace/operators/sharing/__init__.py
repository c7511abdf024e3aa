"""Work that many queries have in common."""
