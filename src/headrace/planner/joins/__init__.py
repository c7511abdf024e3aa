"""Planning of joins of streams and changing relations: into which operators a query is decomposed, and what they
share.
"""
