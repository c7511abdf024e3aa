-- Windows of a user's class: each row is put into its windows when it is scanned.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, window_end FROM a [WINDOW shifts(3000000, 2000000)] GROUP BY k;
