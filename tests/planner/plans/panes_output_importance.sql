-- Importance by an output column becomes intervals of the column that it is made of: a falling line reverses them.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT 10 - 2 * v AS left_over, COUNT(*) AS n
FROM a [RANGE TUMBLING 5 SECONDS] GROUP BY 10 - 2 * v WITH SHEDDING
WITH QOS (delay (1 AT 2 SECONDS, 0 AT 20 SECONDS), loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT), value left_over (0.1 BELOW 8, 1 OTHERWISE));
