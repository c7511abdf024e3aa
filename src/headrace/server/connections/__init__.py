"""Connections of HTTP clients: their deadlines and number, and followers, by events or WebSocket, that are written to together."""
