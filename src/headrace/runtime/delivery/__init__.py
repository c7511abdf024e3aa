"""Delivery of results to clients, sinks and files."""
