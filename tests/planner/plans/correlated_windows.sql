-- An aggregate that compares a row with its group: rows are kept and grouped when a window closes.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) FILTER (WHERE v >= AVG(v)) AS above, AVG(v) AS mean
FROM a [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k;
