"""The plan of an epoch, from the queries of the catalog."""
