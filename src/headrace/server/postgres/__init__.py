"""Server for SQL tools: the wire protocol of PostgreSQL (version 3), for psql, JDBC, psycopg, Grafana and others."""
