"""Binding of FROM: streams, relations and queries, their windows, joins, unions and set operators; BEGIN … END."""
