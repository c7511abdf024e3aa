-- Streams without windows: rows hold without end, and pairs only add up.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.v = 1;
