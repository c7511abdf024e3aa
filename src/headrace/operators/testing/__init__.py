"""Operators without a driver, for tests."""
