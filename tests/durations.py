"""The durations of all tests on file, and the comparison of a run of the suite with them.

To write new ones: bash launch/test.sh --peers --slow --write-durations
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

_FILE = Path(__file__).with_name("durations.json")
_SHARE, _SECONDS = 0.5, 5.0  # a file of tests is reported if it changed by more than both


def read_durations() -> dict[str, float]:
    """Maps each test to its seconds, including the setup of fixtures that it used first."""
    tests = json.loads(_FILE.read_text(encoding="utf-8"))
    return {f"{file}::{test}": s for file, each in tests.items() for test, s in each.items()}


def write_durations(seconds: Mapping[str, float]) -> None:
    """Writes a run's durations to the file."""
    tests: dict[str, dict[str, float]] = defaultdict(dict)
    for name in sorted(seconds):
        file, _, test = name.partition("::")
        tests[file][test] = round(seconds[name], 2)
    _FILE.write_text(json.dumps(tests, indent=0) + "\n", encoding="utf-8")


def changes_since(before: Mapping[str, float], now: Mapping[str, float]) -> Iterator[str]:
    """A line about the machine's speed, and one for each file of tests that changed otherwise."""
    long = [now[name] / before[name] for name in now if before.get(name, 0) >= 0.2]
    pace = statistics.median(long) if long else 1.0
    yield f"this machine takes {pace:.2f} times as long"
    expected, measured = defaultdict(float), defaultdict(float)
    for name, seconds in now.items():
        file = name.partition("::")[0]
        expected[file] += pace * before.get(name, 0.0)
        measured[file] += seconds
    changed = {file: measured[file] - expected[file] for file in measured}
    for file in sorted(changed, key=lambda file: -abs(changed[file])):
        if abs(changed[file]) > max(_SECONDS, _SHARE * expected[file]):
            yield f"{changed[file]:+7.1f} s  {file} ({expected[file]:.1f} s expected)"
