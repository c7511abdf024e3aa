"""The sources of FROM: streams, relations, queries, their windows, joins and unions."""
