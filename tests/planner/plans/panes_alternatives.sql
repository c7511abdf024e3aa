-- A query that allows an error has exact panes, and panes of sketches for overloads.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, APPROX_COUNT_DISTINCT(v) WITHIN 2 PERCENT AS kinds, ERROR_BOUND(kinds) AS bound
FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k WITH QOS (delay (1 AT 2 SECONDS), sketches 0.9);
