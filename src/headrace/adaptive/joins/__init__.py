"""Orders in which a join searches its sides, and trees of joins: their costs, and the choice of good ones."""
