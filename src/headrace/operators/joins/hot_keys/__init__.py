"""Hot keys of a join, whose rows are divided between tasks: which keys have much of the work, and where each of their rows goes."""
