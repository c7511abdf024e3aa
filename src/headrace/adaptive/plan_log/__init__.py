"""What a log of chosen plans shows: plans to use again, statistics that matter, what adapting saves."""
