"""Logs of records, manifests, and lists that are cheap to publish."""
