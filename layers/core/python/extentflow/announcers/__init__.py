"""Where ends of jobs are told: `kafka` (the topic extentflow.jobs), `eventbridge` (a bus)."""
