"""The order of one conjunction, or of one side of a join, from the first few sampled rows until it is settled."""
