"""Who may do what over the network: roles, owners, paths, quotas, and the log of it."""
