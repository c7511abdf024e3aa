-- WITH QOS a query may have a share of the rows of its own, so its panes are its own too.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, SUM(v) AS total
FROM a [RANGE TUMBLING 5 SECONDS] GROUP BY k WITH SHEDDING
WITH QOS (delay (1 AT 2 SECONDS, 0 AT 20 SECONDS), loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT), value d (0.1 BELOW 10, 1 OTHERWISE));
