"""Run the jobs of a part on several processes, and write every row to the CSV as soon as it is known."""

from __future__ import annotations

import csv
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.reproduce.jobs import MEASURED, Job, Row
from benchmarks.shared.study import csv_text

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

    Args:
        file: the CSV. New rows are appended as they come. At the end the file is written again in order.
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
