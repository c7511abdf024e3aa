"""Durable files: write-once runs, manifests published by put-if-absent, garbage collection."""
