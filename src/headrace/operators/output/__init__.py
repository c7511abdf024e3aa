"""Results from groups and rows: HAVING, ORDER BY, LIMIT, the select list and DISTINCT, and changelogs."""
