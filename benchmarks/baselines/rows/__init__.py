"""The rows of a sliding window that answers depend on."""
