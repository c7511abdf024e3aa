"""The scalar functions of the language: their names, types and null rules, without how they are computed."""
