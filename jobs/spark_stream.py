"""`extentflow stream` for spark-submit (Spark 4.0 or later); settings are EXTENTFLOW_... variables.

    spark-submit --master spark://host:7077 --py-files extentflow.zip jobs/spark_stream.py

SIGTERM or SIGINT to this process ends it within five seconds; the next start resumes its work.
"""

from extentflow.cli import run_alone
from extentflow.cli.stream_commands import stream

if __name__ == "__main__":
    run_alone(stream)
