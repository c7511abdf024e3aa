"""Statements about streams and the reducers of their archives."""
