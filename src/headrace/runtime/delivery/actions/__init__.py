"""Actions of queries (THEN): committed rows to webhooks, mail servers, streams and folders (Babu and Widom, triggers as queries)."""
