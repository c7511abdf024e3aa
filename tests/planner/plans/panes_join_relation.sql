-- A relation is looked up row by row, below the panes; conditions on the stream alone come first.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path 'tests/planner/names.csv', header 'true');

CREATE QUERY q AS
SELECT name, COUNT(*) AS n
FROM a [RANGE TUMBLING 5 SECONDS] JOIN names ON a.k = names.k WHERE v > 0 AND name <> 'two' GROUP BY name;
