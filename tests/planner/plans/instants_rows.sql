-- A relation at every instant: rows of the last seconds.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, v FROM a [RANGE 3 SECONDS] WHERE v > 0;
