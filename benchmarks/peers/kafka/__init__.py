"""Kafka Streams, in Java, with a broker of its own."""
