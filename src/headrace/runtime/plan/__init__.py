"""The epoch plan: made from the catalog's queries, with internal streams of results and of unions, and stored in files; and
the definitions of users' functions and windows.
"""
