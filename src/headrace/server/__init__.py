"""Servers of a running hub: HTTP over the socket in its home and, where that is asked for, HTTP and PostgreSQL's
protocol over TCP.
"""
