"""The process that Spark's Python workers are forked from: it imports the pipeline once, for all of them.

Spark starts it with the first task, as the session's `spark.python.daemon.module`. Otherwise every worker would import the same modules for
itself, all at the same time, within the first epoch. Only modules are loaded before a fork: no thread is started, no file stays open.
"""

from __future__ import annotations

from pyspark.daemon import manager

import headrace.runtime.spark.spark_executor  # noqa: F401 - what the functions of tasks are unpickled from
from headrace.runtime.home.gc_control import freeze_modules

if __name__ == "__main__":
    freeze_modules()
    manager()
