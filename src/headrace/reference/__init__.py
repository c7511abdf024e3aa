"""What a query means: a slow evaluator that shares no code with the operators."""
