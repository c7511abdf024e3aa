"""Permissions over the network: principals with roles, owners of queries, folders that statements may use, quotas, and
the audit log.
"""
