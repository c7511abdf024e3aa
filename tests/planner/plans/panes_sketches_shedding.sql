-- Rows are lost last, after they are sketched: a sample has panes of its own, apart from exact ones.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, APPROX_PERCENTILE(v, 0.5) WITHIN 10 PERCENT AS m, ERROR_BOUND(m) AS m_bound
FROM a [RANGE TUMBLING 5 SECONDS] GROUP BY k WITH SHEDDING
WITH QOS (delay (1 AT 2 SECONDS, 0 AT 20 SECONDS), sketches 0.9, loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT));
