-- IN over a stored relation is a test of each row.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;
CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path 'tests/planner/names.csv', header 'true');

CREATE QUERY q AS
SELECT k, v FROM a WHERE k IN (SELECT k FROM names WHERE name <> 'two') AND v > 0;
