"""A running hub from outside: HTTP over the socket in its home, and over TCP where that is asked for."""
