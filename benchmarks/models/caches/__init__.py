"""Caches of joins over traces (A-Caching): the printed join with caches that queries share."""
