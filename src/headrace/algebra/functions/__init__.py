"""The functions of the language: their names, types and null rules."""
