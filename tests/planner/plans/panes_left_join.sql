-- A LEFT JOIN keeps the rows that match nothing.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path 'tests/planner/names.csv', header 'true');

CREATE QUERY q AS
SELECT name, COUNT(*) AS n, MAX(v) AS top
FROM a [RANGE TUMBLING 5 SECONDS] LEFT JOIN names ON a.k = names.k AND v > 0 GROUP BY name;
