-- The first query has a join of its own; the second, of other windows and conditions, founds a join that the third reads too.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY alone AS SELECT x.v, y.v AS w FROM a x [RANGE 2 SECONDS], b y [RANGE 4 SECONDS] WHERE x.k = y.k AND x.v > 2;
CREATE QUERY founder AS SELECT y.v, x.d FROM b y [RANGE 3 SECONDS] JOIN a x [RANGE 2 SECONDS] ON y.k = x.k;
CREATE QUERY q AS SELECT x.k, COUNT(*) AS n FROM a x [RANGE 1500 MILLISECONDS], b y [RANGE 4 SECONDS]
WHERE x.k = y.k AND x.v < y.v GROUP BY x.k;
