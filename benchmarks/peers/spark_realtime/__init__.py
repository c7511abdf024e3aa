"""Spark's real-time mode, in Java, between two topics of Kafka."""
