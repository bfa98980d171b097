"""Seconds from a fault to the end of the last process of a run on every host, by launcher and fault.

Run as root on a quiet machine: python benchmarks/shutdown.py. The runs and faults are those of tests/cluster:
two hosts in namespaces of their own, sshd, pdsh, MPI and Slurm as they are installed. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import measure

FAULTS = "tests/cluster/test_faults.py", "tests/cluster/test_slurm_launch.py"
MARK = "seconds until all is down after "
SLURM = "slurm"


def figures_of(report: Path) -> dict[str, dict[str, float]]:
    """Return seconds by launcher and fault from what pytest wrote."""
    found: dict[str, dict[str, float]] = {}
    for case in ET.parse(report).iter("testcase"):
        of_slurm = case.get("classname", "").endswith("test_slurm_launch")
        launcher = SLURM if of_slurm else case.get("name", "").rpartition("[")[2].rstrip("]")
        for row in case.iter("property"):
            name = row.get("name", "")
            if name.startswith(MARK):
                found.setdefault(launcher, {})[name.removeprefix(MARK)] = float(row.get("value", "nan"))
    return found


def main() -> None:
    """Let pytest run the faults and print how long everything took to be down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="pytest's -k: some launchers or faults")
    only = parser.parse_args().only
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        written = ("-o", "junit_family=xunit1", f"--junitxml={report}")
        words = [sys.executable, "-m", "pytest", "-q", *written, *FAULTS, "-k", only]
        environ = measure.environment(OMP_NUM_THREADS="1", DSFORGE_CLUSTER_TESTS="mandatory")
        done = subprocess.run(words, cwd=measure.ROOT, env=environ, stdout=sys.stderr, check=False)
        if done.returncode != 0:
            sys.exit("a run was not down as it should be: see above")
        figures = figures_of(report)
    slowest = max(seconds for faults in figures.values() for seconds in faults.values())
    measure.report("shutdown", {"seconds": figures, "slowest": slowest}, hosts=2, ranks=2, machine=machine)


if __name__ == "__main__":
    main()
