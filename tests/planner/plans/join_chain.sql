-- The third and fourth stream share a key with the pairs of the first two, and are joined with them by one operator.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT x.k, COUNT(*) AS n FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS], a z [RANGE 1 SECOND], b u [RANGE 2 SECONDS]
WHERE x.k = y.k AND y.v = z.v AND z.v = u.v AND u.d > 0 GROUP BY x.k;
