"""Builders of operators by kind, for the rules of `lower.py`. Those that few queries need are imported with the first of these."""
