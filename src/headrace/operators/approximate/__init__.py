"""Time windows and relations with approximate answers within a stated bound."""
