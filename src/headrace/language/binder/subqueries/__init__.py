"""Binding of SELECTs inside expressions."""
