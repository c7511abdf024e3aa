-- The same without aggregates, partitioned.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, v, window_end FROM a [RANGE 4 SECONDS SLIDE 2 ROWS PA k] WHERE v > 0;
