"""Windows, the rows that each of them holds, and users' classes of windows."""
