-- Holistic aggregates keep the values of a group in each pane.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, PERCENTILE(v, 0.5) AS middle, MODE(v) AS often
FROM a [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k;
