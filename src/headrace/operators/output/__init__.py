"""Output steps of queries: HAVING, ORDER BY, LIMIT, the select list, DISTINCT and changelogs; operators without
windows; and EXPLAIN lines.
"""
