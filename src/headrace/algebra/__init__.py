"""See ARCHITECTURE.md for what this room is for."""
