-- Windows of two streams that slide: a pair is in the windows that hold both of its rows.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.k, COUNT(*) AS n, MAX(y.v) AS top
FROM a x [RANGE 3 SECONDS SLIDE 2 SECONDS], b y [RANGE 5 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.v < y.v GROUP BY x.k;
