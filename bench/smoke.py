"""`make bench-smoke`: a few ratios at a small scale, against the recorded ones.

It uses a stack of its own, on free ports, and removes it. Fixed costs weigh more at this scale, so
these ratios are only compared with recorded ones of the same scale.
"""

import json
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bench.machine import machine
from bench.report import RECORDED, SMOKE
from bench.result import Result
from bench.stand import SERVICES, Terms
from bench.suite import CASES
from extentflow_local.stack.stack import Stack

SCALES: Mapping[str, float] = {
    "lines": 0.2,
    "parquet-json": 0.1,
    "spark-native": 0.2,
    "scaling": 0.1,
}
PAIRS = 3
TOLERANCE = 0.15
SECONDS = 160.0
"""What is not measured by then is left out; the stack takes some more to end."""

Ratios = Mapping[str, Mapping[str, float]]


class OutOfTimeError(Exception):
    """The time limit was reached."""


def main() -> int:
    """Measure and compare; return 0 only if all cases ran and no ratio is beyond tolerance."""
    started = time.monotonic()
    found, left = measure(Path.cwd() / "var" / "bench")
    recorded = read(RECORDED / f"{SMOKE}.json")
    beyond = list(differences(found, recorded))
    for line in beyond:
        _say(line)
    compared = sum(name in recorded.get(case, {}) for case in found for name in found[case])
    verdict = (
        f"{len(beyond)} of {compared} ratios differ by more than {TOLERANCE:.0%}"
        if recorded
        else "there are no recorded figures; `make bench-record` records these"
    )
    missing = f"; not measured: {', '.join(left)}" if left else ""
    _say(f"make bench-smoke: {verdict}{missing}; {time.monotonic() - started:.0f} s")
    return 1 if beyond or left else 0


def measure(folder: Path) -> tuple[Ratios, list[str]]:
    """Run the cases within the time limit; return their ratios, and the missing cases."""
    root = folder / SMOKE
    found: dict[str, Mapping[str, float]] = {}
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with Stack(root, services=SERVICES, free_ports=True, notify=_say) as stack, _time(SECONDS):
        try:
            stack.up()
            for case, scale in SCALES.items():
                try:
                    result = CASES[case].measure(Terms(root, scale, PAIRS, _say))
                except OutOfTimeError:
                    raise
                except Exception:  # noqa: BLE001 - one broken case does not hide the others
                    _say(traceback.format_exc())
                    continue
                found[case] = result.ratios
        except OutOfTimeError:
            _say(f"time limit of {SECONDS:g} s reached; the remaining cases are skipped")
    shutil.rmtree(root, ignore_errors=True)
    _write(folder, found)
    return found, [case for case in SCALES if case not in found]


def read(path: Path) -> Ratios:
    """Return recorded ratios by case, if they have the current scale."""
    if not path.exists():
        return {}
    recorded = json.loads(path.read_text(encoding="utf-8"))
    ratios: Ratios = recorded["ratios_by_case"]
    return {case: ratios[case] for case in ratios if recorded["scales"][case] == SCALES.get(case)}


def differences(found: Ratios, recorded: Ratios) -> Iterator[str]:
    """Yield a line for every ratio that differs from the recorded one by more than TOLERANCE."""
    for case, ratios in found.items():
        for name, ratio in ratios.items():
            before = recorded.get(case, {}).get(name)
            if before is not None and abs(ratio / before - 1) > TOLERANCE:
                words = name.replace("_", " ")
                yield f"{case}, {words}: {ratio:g}, recorded {before:g} ({ratio / before - 1:+.0%})"


def _write(folder: Path, found: Ratios) -> None:
    result = Result(
        case="a few ratios at a small scale",
        scale=1.0,
        pairs=PAIRS,
        figures={"scales": dict(SCALES), "ratios_by_case": {**found}},
    )
    text = json.dumps(result.to_json(machine()), indent=2)
    (folder / f"{SMOKE}.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def _time(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the context after the time limit."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
