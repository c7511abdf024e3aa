"""The built-in streams: the rows about an epoch, and their feed."""
