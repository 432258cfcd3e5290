"""`extentflow lake` for spark-submit (Spark 4.0); settings are EXTENTFLOW_... variables.

    spark-submit --master spark://host:7077 --py-files extentflow.zip --packages PACKAGES \
        jobs/spark_lake.py orders --to s3a://lake/warehouse --table sales.orders

docs/lake.md lists the packages. SIGTERM or SIGINT to this process ends it; the target states where
the next start continues.
"""

from extentflow.cli import run_alone
from extentflow.cli.lake_commands import lake

if __name__ == "__main__":
    run_alone(lake)
