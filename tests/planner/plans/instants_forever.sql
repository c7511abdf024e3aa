-- Aggregates of all rows, at every instant.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT COUNT(*) AS n, SUM(v) AS total FROM a;
