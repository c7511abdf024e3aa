-- Aggregates over windows of two streams: each aggregate reads one side, so no pair is made.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.k, COUNT(*) AS n, SUM(x.v) AS s, AVG(y.d) AS m
FROM a x [RANGE TUMBLING 4 SECONDS] JOIN b y [RANGE TUMBLING 4 SECONDS] ON x.k = y.k WHERE x.v > 0 GROUP BY x.k;
