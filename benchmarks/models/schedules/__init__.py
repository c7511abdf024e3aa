"""Schedules of operators with queues over traces: Chain and those with which it is compared."""
