"""From joins of streams and of relations to operators."""
