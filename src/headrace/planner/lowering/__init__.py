"""From a bound query to operators."""
