"""A part of the reproduction: jobs that measure accuracies as rows of a CSV, and files that are made of the rows.

A part is a module with the functions of :class:`Part`. Its jobs run on several processes, and every row is written to
the CSV as soon as it is known.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.shared.reference import Case
from benchmarks.shared.study import csv_text

Row = dict[str, str]
"""One row of a CSV: column → text."""
MEASURED = ("accuracy", "sd", "error", "n", "seconds")
"""The last columns of every CSV: mean accuracy, standard deviation of one repetition, standard error of the mean,
number of repetitions, and the seconds of the job that measured the row (rows of one job have equal seconds)."""


class Size(NamedTuple):
    """How much to measure: everything, or with ``quick`` few points and repetitions."""

    quick: bool


class Job(NamedTuple):
    """One or several rows that are measured together, for example two models of the same reports.

    Attributes:
        rows: the columns that name each row: column → text. No two rows of a part have equal names.
        measure: a function of a module (another process imports it), called as measure(*arguments, repeats, seed). It
            returns for each row ``repeats`` accuracies, equal ones for equal arguments.
    """

    rows: tuple[Mapping[str, str], ...]
    repeats: int
    measure: Callable[..., Sequence[Sequence[float]]]
    arguments: tuple[Any, ...] = ()

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """What identifies each row: its names and the number of repetitions."""
        return [(*map(str, names.values()), str(self.repeats)) for names in self.rows]

    def seed(self, base: int) -> int:
        """Return the job's seed: it depends on ``base`` and on the names of the rows only."""
        text = repr((base, [sorted(names.items()) for names in self.rows]))
        return int.from_bytes(sha256(text.encode()).digest()[:4], "big")

    def columns(self) -> list[str]:
        """Return the columns of the CSV."""
        return [*self.rows[0], *MEASURED]

    def results(self, found: Sequence[Sequence[float]], seconds: float) -> list[Row]:
        """Return the complete rows, from the accuracies of each."""
        rows = []
        for names, accuracies in zip(self.rows, found, strict=True):
            if len(accuracies) != self.repeats or not all(0 <= each <= 1 for each in accuracies):
                raise ValueError(f"{dict(names)}: {self.repeats} accuracies between 0 and 1 are needed")
            sd = stdev(accuracies) if self.repeats > 1 else float("nan")
            measured = {
                "accuracy": f"{fmean(accuracies):.5f}",
                "sd": f"{sd:.5f}",
                "error": f"{sd / sqrt(self.repeats):.5f}",
                "n": str(self.repeats),
                "seconds": f"{seconds:.1f}",
            }
            rows.append({**{name: str(value) for name, value in names.items()}, **measured})
        return rows


def agreement(case: Case, row: Row) -> Row:
    """Return the columns that compare a row with an independent simulation (``reference/accuracy.csv``)."""
    error = max(case.sd, float(row["sd"])) * sqrt(1 / case.runs + 1 / int(row["n"]))
    difference = float(row["accuracy"]) - case.accuracy
    return {
        "independent": f"{case.accuracy:.4f}",
        "here": row["accuracy"],
        "difference": f"{difference:+.4f}",
        "standard_errors": f"{difference / error:+.1f}",
    }


class Part(Protocol):
    """A module that measures one part."""

    def jobs(self, size: Size) -> list[Job]:
        """Return what to measure, in the order of the rows."""

    def files(self, rows: Sequence[Row], size: Size) -> Mapping[str, str]:
        """Return the plots and tables of complete rows: file name → text."""


Key = tuple[str, ...]


def complete_rows(
    jobs: Sequence[Job],
    file: Path,
    *,
    seed: int,
    processes: int,
    title: str,
    found: Sequence[Row] = (),
) -> list[Row]:
    """Measure the rows that are missing, and write all rows of the jobs to a CSV, in the order of the jobs.

    ``file``: the CSV. New rows are appended as they come. At the end the file is written again in order.
    """
    columns, known = jobs[0].columns(), _known(jobs, found)
    missing = [job for job in jobs if not all(key in known for key in job.keys)]
    _write(file, columns, list(known.values()))
    with file.open("a", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, columns, lineterminator="\n")

        def keep(rows: list[Row]) -> None:
            known.update({_key(row): row for row in rows})
            writer.writerows(rows)
            out.flush()

        _run(missing, seed, processes, title, keep)
    ordered = [known[key] for job in jobs for key in job.keys]
    _write(file, columns, ordered)
    return ordered


def found_rows(jobs: Sequence[Job], found: Sequence[Row]) -> list[Row]:
    """Return the rows of the jobs, in their order, as far as they are among rows of an earlier run."""
    known = _known(jobs, found)
    return [known[key] for job in jobs for key in job.keys if key in known]


def _known(jobs: Sequence[Job], found: Sequence[Row]) -> dict[Key, Row]:
    columns = jobs[0].columns()
    return {_key(row): row for row in found if list(row) == columns}


def seconds_of(jobs: Sequence[Job], rows: Sequence[Row]) -> float:
    """Return the seconds of all jobs together, also those of earlier runs. ``rows`` are the jobs' rows, in order."""
    total, start = 0.0, 0
    for job in jobs:
        total += float(rows[start]["seconds"])
        start += len(job.rows)
    return total


def _key(row: Row) -> Key:
    """Return what identifies a row, its names and ``n``, as in :attr:`Job.keys`."""
    return (*(value for name, value in row.items() if name not in MEASURED), row["n"])


def _write(file: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Replace the CSV. A run that is killed leaves the old file or the new one."""
    beside = file.with_name(file.name + ".new")
    beside.write_text(csv_text(rows, columns), "utf-8")
    beside.replace(file)


def _run(jobs: Sequence[Job], seed: int, processes: int, title: str, keep: Callable[[list[Row]], None]) -> None:
    """Measure jobs. ``keep`` gets the rows of each job when the job ends, in any order of jobs."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task(title, total=len(jobs))
        for rows in _measured_rows(jobs, seed, processes):
            keep(rows)
            progress.advance(task)
            for row in rows:
                progress.console.print("  ".join(list(row.values())[: -len(MEASURED) + 1]), highlight=False)


def _measured_rows(jobs: Sequence[Job], seed: int, processes: int) -> Iterator[list[Row]]:
    """Yield the rows of each job as soon as it ends. With one process, the jobs run in this process."""
    if processes == 1 or not jobs:
        yield from (_measured(job, job.seed(seed)) for job in jobs)
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # The processes use all cores already.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_like_parent, initargs=(sys.path,))
    try:
        for future in as_completed([pool.submit(_measured, job, job.seed(seed)) for job in jobs]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _like_parent(path: list[str]) -> None:
    """Let a new process import the same modules, and end with the process that started it, even if that is killed."""
    sys.path[:] = path
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measured(job: Job, seed: int) -> list[Row]:
    began = time.perf_counter()
    found = job.measure(*job.arguments, job.repeats, seed)
    return job.results(found, time.perf_counter() - began)
