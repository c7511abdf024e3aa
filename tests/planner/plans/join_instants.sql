-- Windows at every instant: a pair holds as long as both of its rows.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.k, x.v, y.v AS w FROM a x [RANGE 2 SECONDS], b y [RANGE 4 SECONDS] WHERE x.k = y.k;
