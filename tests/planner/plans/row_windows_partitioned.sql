-- Each partition counts its own rows, here by arrival.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT k, COUNT(*) AS n, MAX(v) AS top FROM a [ROWS 4 SLIDE 2 WATTR row_num PA k] GROUP BY k;
