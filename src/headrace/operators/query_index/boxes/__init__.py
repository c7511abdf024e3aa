"""Compiled conditions of many queries as boxes, one set of values per attribute, and the matching of rows with them."""
