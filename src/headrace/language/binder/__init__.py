"""The binder: from syntax to algebra, given the catalog."""
