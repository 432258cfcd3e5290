"""The `spark-submit` entry point of the standing query: deliver what arrives, until it is stopped.

    spark-submit --master spark://host:7077 --py-files extentflow.zip jobs/spark_stream.py
    python jobs/spark_stream.py --once          on this machine, what is waiting now

Spark 4.0 or later. Settings are environment variables of the driver (EXTENTFLOW_...), as for
spark_ingest.py. SIGTERM or SIGINT to this process ends it within five seconds: workers commit, hand
back what they hold, and the next start resumes it.
"""

from extentflow.cli.streamed import main

if __name__ == "__main__":
    main()
