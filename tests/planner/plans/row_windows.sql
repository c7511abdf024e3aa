-- [ROWS n SLIDE m] ends at every m-th row, over panes of ranks.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a [ROWS 5 SLIDE 3] GROUP BY k;
