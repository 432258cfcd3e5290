"""The former name of `jobs/spark_deliver.py`, for one release: it warns, and does the same."""

import sys

from extentflow.cli import run_alone
from extentflow.cli.run_commands import deliver

if __name__ == "__main__":
    sys.stderr.write("note: jobs/spark_ingest.py is now jobs/spark_deliver.py; use the new name\n")
    run_alone(deliver)
