-- A relation at every instant: the last rows of each partition.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, v FROM a [PARTITION BY k ROWS 2];
