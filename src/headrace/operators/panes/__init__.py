"""Panes: how windows are made of them, and how their rows and groups are stored."""
