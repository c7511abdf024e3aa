"""Progress of streams and operators: punctuation (watermarks) of streams and of groups, which operators take part in an
epoch, lag or fail, how panes are stored, and an index of the plan.
"""
