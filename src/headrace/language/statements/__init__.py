"""Statements, such as CREATE and SHOW: the parser, a record for each statement, and the text of CREATE QUERY."""
