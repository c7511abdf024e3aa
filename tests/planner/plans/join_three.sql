-- Three streams with one key are joined by one operator.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.v, y.v AS w, z.v AS u
FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS], a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.k = x.k AND z.v >= x.v;
