"""Client of a hub that another process runs, over the socket in its home or over HTTP, with the methods of a hub in
this process.
"""
