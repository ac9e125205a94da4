"""The figures and tables of the papers again, on the papers' data: accuracy against ε, θ and the number of devices.

    python -m benchmarks.reproduce --data DIR [--quick] [--only PART …] [--folder OUT] [--again] [--draw]
                                   [--processes N] [--seed S]

DIR has the folders ``datasets`` and ``reference``. Each part writes ``PART.csv`` row by row; rows that are there are
not measured again, unless ``--again`` says so. Then it draws ``reproduce-*.svg``; ``PART.txt`` states machine and
seconds. With the same seed all columns but ``seconds`` are the same. Folders: ``benchmarks/results/reproduce`` and
``docs/plots``, with ``--quick`` (few points) ``build/reproduce``. ``--draw`` only draws again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks.reproduce.jobs import Part, Size, complete_rows, found_rows, seconds_of
from benchmarks.shared import reference
from benchmarks.shared.harness import machine
from benchmarks.shared.study import read_rows

PARTS = {
    "discrete": "benchmarks.reproduce.discrete",
    "theta": "benchmarks.reproduce.theta",
    "continuous": "benchmarks.reproduce.continuous",
    "learning": "benchmarks.reproduce.learning",
    "questions": "benchmarks.reproduce.questions",
}
"""Name of each part, and the module with its functions ``jobs`` and ``files`` (:mod:`benchmarks.reproduce.jobs`)."""
ROOT = Path(__file__).parents[2]
RESULTS, PLOTS, QUICK = ROOT / "benchmarks/results/reproduce", ROOT / "docs/plots", ROOT / "build/reproduce"


def main(words: Sequence[str] | None = None) -> int:
    """Measure and draw the parts. Return 0; 1 if ``--draw`` finds rows missing; 2 if there are no data."""
    options = _options(words)
    reference.FOLDER = options.data.resolve()
    os.environ["HEARSAY_REFERENCE"] = str(reference.FOLDER)  # For the processes that measure.
    if not reference.available():
        print(f"{options.data}: {reference.NOT_HERE}", file=sys.stderr)
        return 2
    print(f"{machine()}, {options.processes} processes, seed {options.seed}")
    results = options.folder or (QUICK if options.quick else RESULTS)
    plots = options.folder or (QUICK if options.quick else PLOTS)
    for folder in (results, plots):
        folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    done = [_part(name, results, plots, options) for name in options.only or PARTS]
    print(f"all: {time.perf_counter() - began:.0f} s")
    return 0 if all(done) else 1


def _part(name: str, results: Path, plots: Path, options: argparse.Namespace) -> bool:
    """Measure the missing rows of a part, unless ``--draw`` is given, and write the part's other files.

    Return False, and write nothing, if ``--draw`` finds rows missing.
    """
    part, size, file = cast("Part", import_module(PARTS[name])), Size(options.quick), results / f"{name}.csv"
    rows = [] if options.again else read_rows(file)
    jobs = part.jobs(size)
    if options.draw:
        rows, expected = found_rows(jobs, rows), sum(len(job.rows) for job in jobs)
        if len(rows) < expected:
            print(f"{name}: {expected - len(rows)} of {expected} rows are missing in {file}", file=sys.stderr)
            return False
    else:
        rows = complete_rows(jobs, file, seed=options.seed, processes=options.processes, title=name, found=rows)
        about = f"{machine()}\nseed {options.seed}, {len(rows)} rows, {seconds_of(jobs, rows):.0f} s of one core\n"
        (results / f"{name}.txt").write_text(about, "utf-8")
        print(f"{name}: {about.splitlines()[1]}")
    for made, text in part.files(rows, size).items():
        ((plots if made.endswith(".svg") else results) / made).write_text(text, "utf-8")
    return True


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=reference.FOLDER, help="folder with datasets/ and reference/")
    parser.add_argument("--quick", action="store_true", help="few points, few repetitions")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--folder", type=Path, help="folder for all files")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--again", action="store_true", help="measure rows again that are there already")
    again.add_argument("--draw", action="store_true", help="only draw the rows that are there")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
