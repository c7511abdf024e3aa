-- WITH SHEDDING (repair) has panes of its own, and all of a window in one place.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, SUM(v) AS total
FROM a [RANGE TUMBLING 5 SECONDS] GROUP BY k WITH SHEDDING (repair);
