"""Connections of HTTP clients: their deadlines and number, and event streams that many followers read together."""
