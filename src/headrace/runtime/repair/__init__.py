"""Repair of answers that were emitted from samples: the ledger of what waits for it, and the epochs that read the archive for it."""
