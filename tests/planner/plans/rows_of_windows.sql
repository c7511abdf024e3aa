-- Without aggregates the rows of a window are kept until it closes.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, v, window_id FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE v > 0;
