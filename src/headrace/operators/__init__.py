"""Operators, of which the plans of standing queries consist, and all that they compute with: functions from Arrow
tables and state to Arrow tables and state.
"""
