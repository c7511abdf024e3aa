-- A session ends when no row comes for its gap.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY session_window(at, '1 second'), k;
