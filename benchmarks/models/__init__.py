"""Algorithms of the papers in the form in which they are printed, over traces: yardsticks of what the product does, and of its choices."""
