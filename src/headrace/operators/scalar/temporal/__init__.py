"""Functions of times: parts, arithmetic, zones, the calendar."""
