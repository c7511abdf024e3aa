"""The only folder that imports Spark (but for cloudpickle in `plan`): its JVM, session, jobs, standing tasks and
DataFrames.
"""
