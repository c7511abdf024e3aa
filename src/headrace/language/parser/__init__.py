"""The parser of SELECT: from tokens to syntax."""
