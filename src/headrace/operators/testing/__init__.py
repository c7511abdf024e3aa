"""Local driver of operators, for tests."""
