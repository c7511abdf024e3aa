"""k-constraints of streams: how nearly streams obey them, and which rows of a join they make superfluous; without the runtime."""
