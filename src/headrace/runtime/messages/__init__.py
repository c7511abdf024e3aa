"""Values that the driver and its tasks exchange: the epoch plan, the work of an epoch, messages, receipts and blobs,
progress of streams; and the entries of the results list that an epoch commits.
"""
