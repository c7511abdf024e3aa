"""The only room that knows Spark: session, sources, epoch loop, exchange, sinks."""
