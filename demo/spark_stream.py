"""`make demo-spark-stream`: uploads become records through a streaming query on a Spark cluster.

S3 server ──> notifier ──> planner function ──> extents queue ──> Spark query ──> Kafka
one of its two machines is killed
"""

import sys

from demo.eventpath import event_path
from demo.eventrows import compare
from demo.feeds import Numbers
from demo.frame import ROOT, Demo, Outcome, console, ended
from demo.streaming import EXTENT, OBJECTS, ROWS, Story, show, submitted_query, two_feeds, upload
from extentflow_local.stack.spark_cluster import SparkCluster


def _tell(run: str, objects: int) -> Outcome:
    work = ROOT / "var" / "demo" / "spark-stream" / run
    work.mkdir(parents=True)
    console.rule("stack, template, planner")
    with event_path(ROOT, run, console.print, uploads=True, workers=False) as path:
        feeds = two_feeds(path, run)
        for feed in feeds:
            feed.declare(**{"extent.bytes": EXTENT})
        environment = path.rig.environment
        console.rule(f"{objects} objects, planned, without a worker")
        upload(feeds, Numbers(ROWS), objects)
        console.rule("a Spark cluster of two machines, and the query")
        with (
            SparkCluster(work / "cluster") as cluster,
            submitted_query(environment, cluster, work) as query,
        ):
            summary = Story(environment, cluster, query, feeds).run_story(objects)
        summary["dead_letters"] = path.in_dead_letter_queues()
        console.rule("reading the topics back with read_committed")
        found = [compare(path.rig.kafka, one.name, one.expected, []) for one in feeds]
    return Outcome(summary, found)


DEMO = Demo("demo-spark-stream", __doc__, OBJECTS, 4, _tell, show, dead_letters="dead_letters")

if __name__ == "__main__":
    sys.exit(ended(DEMO.target, DEMO.main))
