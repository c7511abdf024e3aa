-- EMIT EMPTY speaks for windows whose rows WHERE drops: conditions are kept below and above the window apart.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT COUNT(*) AS n, SUM(v) AS total
FROM a [RANGE TUMBLING 2 SECONDS] WHERE v > 1 EMIT EMPTY;
