"""Tokens, the cursor over them, the syntax tree, and errors at a place of the text."""
