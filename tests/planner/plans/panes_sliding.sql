-- A window that slides is made of panes, which the windows share.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, MAX(d) AS top, window_end
FROM a [RANGE 10 SECONDS SLIDE 3 SECONDS] GROUP BY k;
