-- Statistics of time series are combined from panes too.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, FIRST(v) AS first, LAST(v) AS last, SLOPE(v) AS up
FROM a [RANGE TUMBLING 6 SECONDS] GROUP BY k;
