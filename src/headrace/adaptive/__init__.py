"""Plans that adapt: statistics of what a plan does, and the choice of a better one, without the runtime."""
