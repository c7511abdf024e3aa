"""The ways of the literature to evaluate windows that Headrace does not take, in numpy, as what the experiments compare with.

Each is written as fast as numpy allows for its own method; none uses Headrace. Sources: Li, Window Queries over Data Streams
(2008), chapters 3, 6, 7 and 8, and the systems it cites.
"""
