"""The `spark-submit` entry point: deliver objects into Kafka on whatever master is submitted to.

    spark-submit --master spark://host:7077 --py-files extentflow.zip jobs/spark_deliver.py \
        --connector orders s3://bucket/prefix/

The same code path as `extentflow run --engine spark`. Settings are environment variables of the
driver (EXTENTFLOW_...); they travel to the executors with each task, references to secrets are
looked up there. Exit code 0 only when every job is DONE.
"""

from extentflow.cli import run_alone
from extentflow.cli.run_commands import deliver

if __name__ == "__main__":
    run_alone(deliver)
