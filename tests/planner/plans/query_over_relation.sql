-- A registered query that holds a relation is read by its changes.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY latest AS
SELECT k, COUNT(*) AS n FROM a [RANGE 3 SECONDS] GROUP BY k;

CREATE QUERY q AS
SELECT b.v, latest.n FROM b [ROWS 2], latest WHERE b.k = latest.k;
