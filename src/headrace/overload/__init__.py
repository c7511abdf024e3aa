"""What to lose when there is too much, and how to say so in the answers."""
