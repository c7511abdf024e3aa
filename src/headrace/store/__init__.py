"""Durable files of a home: files that are written once, logs, manifests (published if absent), garbage collection and
integrity check.
"""
