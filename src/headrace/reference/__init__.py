"""The reference: a slow evaluator that defines the meaning of queries and shares no code with the operators."""
