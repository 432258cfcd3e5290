"""Jobs: from an address to a finished job.

Selects the objects of an address, registers and plans a job for each, runs and replays jobs on an
engine, checks the prerequisites, and publishes the end of each job. How records move is the task of
`extentflow.delivery`; how extents travel as messages is the task of `extentflow.queue`. The
project's folder `jobs/` holds other things: programs for `spark-submit`.
"""
