"""Coverage-guided fuzzing of everything that a device or an aggregator reads from strangers.

    pip install '.[fuzz]'
    python tests/fuzz/run.py [--seconds 60] [--jobs 2] [--corpus DIR] [TARGET …]

The time is divided between the targets, all by default. Each runs in a process of its own with at most 1 GiB of
memory and 10 seconds for one input; a finding ends with exit status 1, the input is in the corpus folder, and
``run.py --replay FILE TARGET`` shows it again. A finding becomes a vector or a test before it is mended.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = (
    *("envelope", "root", "campaign", "model", "batch", "report", "provisioning", "nodes", "node", "summaries"),
    *("masked", "messages", "keys", "request", "release", "asked", "said", "total", "pair", "collector"),
)
MEMORY_MB = 1024
SECONDS_PER_INPUT = 10
_STATUS = re.compile(rb"cov: (\d+) ft: (\d+) corp: (\d+)")
_DONE = re.compile(rb"Done (\d+) runs in (\d+) second")


def _load():
    """Our own packages before those of the tests, which have folders of the same names."""
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]


def fuzz(name, seconds, corpus):
    """Run one target in this process; does not return."""
    import atheris

    _load()
    with atheris.instrument_imports(include=["protocol", "edge_sdk", "aggregator.collectors"]):
        from fuzz.targets import LARGEST, TARGETS
    from fuzz.mutate import mutated
    from fuzz.seeds import seeds

    for number, data in enumerate(seeds(name)):
        (corpus / f"seed-{number:04}").write_bytes(data)

    def mutate(data, most, seed):
        rng = random.Random(seed)
        return mutated(name, data, rng, lambda part: atheris.Mutate(part, max(1, len(part) + 8)))[:most]

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LARGEST[name]}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={SECONDS_PER_INPUT}",
        f"-artifact_prefix={corpus.parent / name}-found-",
        "-print_final_stats=1",
    ]
    target = TARGETS[name]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: target(data) and None, custom_mutator=mutate)
    atheris.Fuzz()


def supervise(name, seconds, folder):
    """Run one target in a process of its own and read what it says at its end."""
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = [sys.executable, str(HERE / "run.py"), "--one", "--seconds", str(seconds), "--corpus", str(corpus), name]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    done, status = _DONE.search(run.stdout), _STATUS.findall(run.stdout)
    found = run.returncode != 0 or done is None
    if found:
        sys.stderr.buffer.write(run.stdout[-4000:])
    coverage, features, kept = map(int, status[-1]) if status else (0, 0, 0)
    return {
        "target": name,
        "seconds": round(time.monotonic() - began),
        "executions": int(done.group(1)) if done else 0,
        "coverage": coverage,
        "features": features,
        "corpus": kept,
        "found": found,
    }


def main():
    """Divide the time, run, print a table; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="in all, summed over processes (60)")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (1)")
    parser.add_argument("--corpus", type=Path, help="folder that keeps what was reached; default: thrown away")
    parser.add_argument("--replay", type=Path, help="run one target on one file, without atheris")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.targets or list(NAMES)
    if not set(names) <= set(NAMES):
        parser.error(f"the targets are {', '.join(NAMES)}")
    if options.replay:
        _load()
        from fuzz.targets import TARGETS

        print(TARGETS[names[0]](options.replay.read_bytes()))
        return 0
    if options.one:
        fuzz(names[0], options.seconds, options.corpus)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        folder = options.corpus or Path(scratch)
        each = max(1, options.seconds // len(names))
        rows = list(pool.map(lambda name: supervise(name, each, folder), names))
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{'target':10}{'seconds':>9}{'executions':>12}{'coverage':>10}{'corpus':>8}")
        for row in rows:
            found = "  FOUND SOMETHING" if row["found"] else ""
            print(
                f"{row['target']:10}{row['seconds']:9}{row['executions']:12}{row['coverage']:10}{row['corpus']:8}{found}"
            )
    return int(any(row["found"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
