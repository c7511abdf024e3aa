"""Tokens, the cursor over them, and the syntax tree."""
