"""Handlers of the HTTP routes, one module for each part of the API."""
