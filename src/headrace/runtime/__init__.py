"""The running system over a home: plans, tasks and epochs, delivery of results, statements, and the hub that a program
uses; only `spark` imports Spark (but for cloudpickle in `plan`).
"""
