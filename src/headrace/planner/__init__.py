"""How queries are shared, ordered and placed without changing what they mean."""
