"""Repeat the failed tests of the suites named as arguments: at most three, once.

A suite leaves its outcomes in build/test/SUITE.xml, the names of its failed tests in its cache.
Exit code 0 only where every suite ran to its end and every repeated test passes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

OUTCOMES = Path("build/test")
CACHES = Path(".pytest_cache")
MOST_REPEATED = 3
PASSED, NOTHING_COLLECTED = 0, 5


def main(suites: Sequence[str]) -> int:
    """Repeat, and print each test that then passes as `flaky: NAME`."""
    for problem in unfinished(suites):
        print(f"CI failed: {problem}")
        return 1
    caches = [CACHES / suite / "v/cache/lastfailed" for suite in suites]
    lists = [json.loads(one.read_text()) for one in caches if one.exists()]
    failed = sorted({name for names in lists for name in names})
    if not failed:
        print("CI failed: no test did; see the errors of make above")
        return 1
    if len(failed) > MOST_REPEATED:
        print(f"CI failed: {len(failed)} tests failed, more than {MOST_REPEATED}:", *failed)
        return 1
    still_failing = [name for name in failed if not passes(name)]
    for name in failed:
        print(f"{'failed twice' if name in still_failing else 'flaky'}: {name}")
    return 1 if still_failing else 0


def unfinished(suites: Sequence[str]) -> Iterator[str]:
    """Yield the problems that no repetition of single tests solves."""
    for suite in suites:
        outcomes = OUTCOMES / f"{suite}.xml"
        if not outcomes.exists():
            yield f"{suite} did not run to its end: {outcomes} is missing"
        elif ET.parse(outcomes).find(".//testcase[@name='internal']") is not None:  # noqa: S314
            yield f"pytest itself failed in {suite}; see above"


def passes(name: str) -> bool:
    """Run one test by its name, whichever markers it has."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:randomly", name]
    code = subprocess.run(command, check=False).returncode
    if code == NOTHING_COLLECTED:
        print(f"{name} is not collected by its name; it counts as failed")
    return code == PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
