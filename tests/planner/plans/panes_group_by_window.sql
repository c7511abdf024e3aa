-- Conditions of WHERE stand below GROUP BY window(): an emptied window is none.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT window.end AS w, COUNT(*) AS n FROM a WHERE v > 0 GROUP BY window(at, '5 seconds');
