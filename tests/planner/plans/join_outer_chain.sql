-- A condition of WHERE on the left alone is tested before the joins.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.v, y.v AS w, z.v AS u
FROM a x [RANGE 2 SECONDS] JOIN b y [RANGE 3 SECONDS] ON x.k = y.k LEFT JOIN a z [RANGE 1 SECOND] ON z.v = y.v
WHERE x.v > 0 AND (z.v IS NULL OR z.v < y.v);
