-- A window that slides over the time of one side closes at that side's own punctuation.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT COUNT(*) AS n, SUM(w) AS s
FROM (SELECT x.at AS began, y.v AS w FROM a x, b y
      WHERE x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 2 SECONDS) AS p [RANGE 4 SECONDS SLIDE 2 SECONDS WATTR began];
