"""PyFlink, the Python face of Apache Flink."""
