"""Predicates as data: normal form, factors of one attribute, domains, keys."""
