-- A late row makes a session longer or joins two.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n FROM a GROUP BY session_window(at, '1 second'), k WITH REVISIONS;
