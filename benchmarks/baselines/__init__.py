"""The ways of the literature that Headrace does not take, in numpy, as what the experiments compare with.

Each is written as fast as numpy allows for its own method. Modules of this folder: evaluation of windows (Li, Window Queries over Data
Streams, 2008, chapters 3, 6, 7 and 8, and the systems it cites). Folders: synopses of sliding windows (Datar, Gionis, Indyk, Motwani,
2001) and of correlated aggregates (Gehrke, Korn, Srivastava, 2001), for many keys at once; `snapshot` gives their size in memory.
"""
