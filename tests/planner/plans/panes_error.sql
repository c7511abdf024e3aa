-- WITH QOS sketches may get coarser than others of the same values, so the panes that hold them are its own.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, APPROX_DISTINCT(v) WITHIN 10 PERCENT AS vs, ERROR_BOUND(vs) AS vs_bound
FROM a [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k WITH QOS (error (1 AT 1 TIMES, 0.8 AT 8 TIMES));
