"""Checksums of the sections of a container, which a reader compares with the bytes it reads."""
