"""The hub, by which a program uses a home and its queries: opening, query handles, the state budget, the check of a home,
and `hr.test`.
"""
