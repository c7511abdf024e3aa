"""Which operator of a chain runs next when its queues are in memory: strategies, and a replay that counts what is queued."""
