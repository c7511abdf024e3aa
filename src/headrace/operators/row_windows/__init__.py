"""Windows whose bounds depend on rows."""
