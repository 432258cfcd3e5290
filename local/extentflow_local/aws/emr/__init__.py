"""An emulator of EMR Serverless: its API, with runs on a standalone Spark cluster.

    boto3 ──HTTP──> front ── description ──> application ──> submitting ──> spark-submit, workers
                    calls, errors            states, time        |
                                                 |               └─ downloads the code from S3
                                                 └──events──> listeners, as EventBridge

    with SparkCluster(folder) as cluster:
        begin = SparkSubmits(cluster.master_url, folder, stack.environment())
        code = Code(entry_point=..., archive=..., environment=stack.environment())
        with EmrServerless(begin, code) as emr:
            LocalEventPath(..., emr=emr)

Not emulated: permissions, network, capacity, CloudWatch logs. Runs start at once and share the
cores of the cluster.
"""
