-- A long list of constants is one condition, shown by its first values.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n
FROM a [RANGE TUMBLING 10 SECONDS]
WHERE v IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59)
GROUP BY k;
