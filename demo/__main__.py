"""`make demo`: TPC-H data from S3 through Spark into Kafka, verified record by record."""

import argparse
import json
import sys
import time
from typing import Any

from rich.table import Table

from demo import tpch
from demo.frame import ROOT, console, ended
from demo.rig import Rig
from demo.verify import Verdict, verify

BUCKET = "demo"


def main() -> int:
    """Run the demo; return 0 only if every record of every data set arrived exactly once."""
    arguments = _arguments()
    started = time.monotonic()
    run = time.strftime("%Y%m%d-%H%M%S")
    console.rule("stack")
    rig = Rig.start(ROOT, console.print)
    console.rule("data")
    data_folder = ROOT / "var" / "demo" / "data"
    sets = [
        tpch.lineitem(data_folder, arguments.scale),
        tpch.orders(data_folder, arguments.scale),
    ]
    results = [_deliver(rig, data, run) for data in sets]
    summary = {"datasets": results, "engine": "spark", "delivery_guarantee": "exactly_once"}
    path = ROOT / "var" / "demo" / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n")
    _show(results)
    seconds = time.monotonic() - started
    ok = all(
        not any(result[one] for one in ("duplicates", "missing", "foreign", "wrong_samples"))
        for result in results
    )
    records, samples = (
        sum(one[name] for one in results) for name in ("records", "samples_compared")
    )
    word = f"each of {records:,} records is in its topic once, {samples:,} equal their rows"
    word = word if ok else "[red]records are wrong, see above[/red]"
    console.print(f"make demo: {word}; {seconds:.0f} s; {path.relative_to(ROOT)}")
    console.print(
        "the stack is still running; `.venv/bin/extentflow down` (or `make clean`) stops it"
    )
    return 0 if ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor")
    return parser.parse_args()


def _deliver(rig: Rig, data: tpch.DataSet, run: str) -> dict[str, Any]:
    """Upload, run, read the topic; return the data set's row of the summary."""
    console.rule(data.name)
    name = topic = f"demo-{data.name}-{run}"
    prefix = f"{run}/{data.name}/"
    key = f"{prefix}{data.path.name}"
    with console.status(f"uploading {data.path.name} to s3://{BUCKET}/{key}"):
        rig.upload(data.path, BUCKET, key)
    rig.create_topic(topic)
    rig.put_connector(
        {"name": name, "topic": topic, "aws.s3.bucket.name": BUCKET, "aws.s3.prefix": prefix}
    )
    words = ("run", f"s3://{BUCKET}/{key}", "--connector", name, "--engine", "spark")
    console.print(f"extentflow {' '.join(words)}", highlight=False)
    report = json.loads(rig.extentflow(*words, "--json", quiet=True))
    # Lines, because a status is not shown where the output is a pipe.
    console.print(f"verifying: reading the rows of {data.path.name}", highlight=False)
    truth = tpch.truth(data)
    console.print(
        f"verifying: counting {truth.rows:,} rows in topic {topic}, comparing samples in full",
        highlight=False,
    )
    verdict = verify(rig.kafka, topic, truth, notify=console.print)
    for line in verdict.wrong[:5]:
        console.print(f"[red]{line}[/red]")
    return _result(data, topic, truth, verdict, report)


def _result(
    data: tpch.DataSet, topic: str, truth: tpch.Truth, verdict: Verdict, report: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": data.name,
        "topic": topic,
        "object_bytes": data.size,
        "rows_in_object": truth.rows,
        "records": verdict.records,
        "distinct": verdict.distinct,
        "duplicates": verdict.duplicates,
        "missing": verdict.missing,
        "foreign": verdict.foreign,
        "samples_compared": verdict.samples,
        "wrong_samples": len(verdict.wrong),
        "seconds": round(report["seconds"], 2),
        "rows_per_second": round(verdict.records / report["seconds"]),
        "bytes_fetched": report["bytes_read"],
        "worker_peak_rss_bytes": report["worker_peak_rss_bytes"],
    }


def _show(results: list[dict[str, Any]]) -> None:
    table = Table(
        "data set",
        "rows",
        "records",
        "duplicates",
        "missing",
        "samples",
        "seconds",
        "rows/s",
        "worker memory",
    )
    for row in results:
        table.add_row(
            row["name"],
            f"{row['rows_in_object']:,}",
            f"{row['records']:,}",
            str(row["duplicates"]),
            str(row["missing"]),
            f"{row['samples_compared'] - row['wrong_samples']}/{row['samples_compared']} right",
            f"{row['seconds']:.1f}",
            f"{row['rows_per_second']:,}",
            f"{row['worker_peak_rss_bytes'] / 2**20:.0f} MiB",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(ended("demo", main))
