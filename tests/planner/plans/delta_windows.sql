-- A delta window ends when a value is far from that it began with.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a [PARTITION BY k DELTA 1 ON v] GROUP BY k;
