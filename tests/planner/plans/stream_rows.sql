-- A select over a bare stream only adds rows, in whatever order they come.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, v + 1 AS w FROM a WHERE v > 0;
