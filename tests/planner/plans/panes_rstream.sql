-- RSTREAM over windows that slide changes nothing: they are streamed whole anyway.
CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;

CREATE QUERY q AS
SELECT RSTREAM(k, COUNT(*) AS n)
FROM a [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k;
