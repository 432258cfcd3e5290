"""EMR Serverless on one machine: its API, and runs on a standalone cluster of Spark.

Owns: what the service would do with StartJobRun, GetJobRun and CancelJobRun. Refuses to know: who
starts runs, what they deliver.

    boto3 ──HTTP──> front ── description ──> application ──> submitting ──> spark-submit, workers
                    calls, errors            states, time        |
                                                 |               └─ fetches the code from S3
                                                 └──events──> whoever listens, as EventBridge does

    with SparkCluster(folder) as cluster:
        begin = SparkSubmits(cluster.master_url, folder, stack.environment())
        code = Code(entry_point=..., archive=..., environment=stack.environment())
        with EmrServerless(begin, code) as emr:
            LocalEventPath(..., emr=emr)

Not here: rights, the network, capacity, the log in CloudWatch; a cluster's size is its own. A run
may be begun at once, and several share the cluster's cores one after the other.
"""
