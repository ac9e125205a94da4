"""Seeded mistakes in the product, and whether the tests find them: by hand, before tests are removed and after.

    pip install coverage
    python tests/mutation/mutants.py map                      # which test runs which line: some 15 minutes
    python tests/mutation/mutants.py run --count 1000         # a second or two per mutant and processor
    python tests/mutation/mutants.py run --again BEFORE.jsonl # those that other tests found, in functions of equal code
    python tests/mutation/mutants.py compare BEFORE.jsonl build/mutants/found.jsonl

A *mutant* is the product with one changed operator, number, condition or call. A test finds it if the test fails. Only
tests that run the changed line are tried, the quick ones first, so a mutant that survives is one that none of these
tests can tell from the product. Neither what runs in processes of its own (commands of a shell, clusters) nor what a
module computes while it is imported is changed.

``--again`` needs no map: it tries the test that found the mutant before; if that test is gone or passes, the tests of
its name, of its file, of the files that name the function, and of its package's folder.

Equal seeds and equal sources give equal mutants. A mutant is named by its module, its function, the digest of the
function's code without docstrings, and its number in the function: so the mutants of one tree are found in a later one.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import hashlib
import importlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
import types
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutants"
PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation")
SECONDS = 150
"""Of processor time for all tests of one mutant. A mutant that takes longer counts as found: its tests do not end."""
WAITING = 600
"""Seconds until tests that wait for each other count as found."""
MOST_TESTS = 60
NO_RUN = 99
OUTCOMES = {0: "survived", NO_RUN: "not run"}
"""By the status of a process; every other status is pytest's for a failure."""

COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult}


def mutate(node):
    """Change a node in place, if it is of a kind that has a mutant. Returns what was done, or None."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARED:
            node.ops = [COMPARED[type(op)](), *rest]
            return f"{type(op).__name__} → {type(node.ops[0]).__name__}"
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            node.op = COMPUTED[type(op)]()
            return f"{type(op).__name__} → {type(node.op).__name__}"
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            return f"{type(op).__name__} → {type(node.op).__name__}"
        case ast.Constant(value=bool() as value):
            node.value = not value
            return f"{value} → {node.value}"
        case ast.Constant(value=int() as value):
            node.value = value + 1
            return f"{value} → {node.value}"
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            return "condition negated"
        case ast.Expr(value=ast.Call()):
            node.value = ast.copy_location(ast.Constant(None), node.value)
            return "call left out"
        case _:
            return None


@dataclass(frozen=True)
class Mutant:
    """One mutant: the function of a module, the digest of the function's code, and the mutant's number in it."""

    module: str
    function: str
    code: str
    number: int


def functions(tree, name=""):
    """The functions of a module with their full names, in order; a function in a function belongs to the outer one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            full = f"{name}.{node.name}" if name else node.name
            if isinstance(node, ast.ClassDef):
                yield from functions(node, full)
            else:
                yield full, node


def places(function):
    """The nodes of a function that have a mutant, in order; neither annotations nor docstrings nor messages."""
    for statement in function.body:
        for node in ast.walk(statement):
            nested = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if not nested and hasattr(node, "lineno") and mutate(_copy(node)):
                yield node


def digest(function):
    """The first digits of the digest of a function's code, without docstrings."""
    copy = ast.parse(ast.unparse(function)).body[0]
    for node in ast.walk(copy):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(copy).encode()).hexdigest()[:16]


def _copy(node):
    return ast.copy_location(type(node)(**dict(ast.iter_fields(node))), node)


def path_of(module):
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def mutated(source, mutant):
    """The tree of a source with its mutant, and what was done at which line."""
    tree = ast.parse(source)
    found = [node for name, node in functions(tree) if name == mutant.function and digest(node) == mutant.code]
    node = list(places(found[0]))[mutant.number]
    return ast.fix_missing_locations(tree), node.lineno, mutate(node)


class Loaded:
    """The product and all tests that are not slow, loaded once: each mutant then takes a copy of the process alone."""

    def __init__(self):
        self.tests = []
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "not slow"], [self])
        self.functions, self.caches = defaultdict(list), []
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType):
                self.functions[_name(found.__code__)].append(found)
            elif isinstance(found, functools._lru_cache_wrapper):
                self.caches.append(found)
        gc.freeze()

    def pytest_collection_finish(self, session):
        self.tests = [item.nodeid for item in session.items]

    def change(self, mutant):
        """Give the functions of a mutant their changed code, and forget what was remembered."""
        path = path_of(mutant.module)
        importlib.import_module(mutant.module)
        tree, _, _ = mutated(path.read_bytes(), mutant)
        codes, changed = [compile(tree, str(path), "exec", dont_inherit=True)], 0
        while codes:
            code = codes.pop()
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
            if code.co_qualname == mutant.function:
                for function in self.functions[_name(code)] or _live(_name(code)):
                    function.__code__, changed = code, changed + 1
        for cache in self.caches:
            cache.cache_clear()
        return changed


def _name(code):
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _live(name):
    """The functions of a module that was loaded late."""
    found = [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]
    return [each for each in found if _name(each.__code__) == name]


class Recorder:
    """A plugin of pytest: which lines each test runs, and for how long it runs."""

    def __init__(self):
        import coverage

        self.coverage = coverage.Coverage(data_file=str(FOLDER / f"lines-{os.getpid()}"), source_pkgs=[*PACKAGES])
        self.coverage.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
        self.seconds = {}
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.coverage.start()  # Before pytest imports the product.

    def pytest_runtest_setup(self, item):
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration

    def pytest_sessionfinish(self):
        self.coverage.stop()
        self.coverage.save()
        (FOLDER / f"seconds-{os.getpid()}.json").write_text(json.dumps(self.seconds))


def make_map(jobs, folder):
    """Run all tests that are not slow, in parts, and write which tests run which line of which file."""
    import coverage

    for old in FOLDER.glob("*-[0-9]*"):
        old.unlink()
    files = sorted(path.relative_to(ROOT).as_posix() for path in folder.rglob("test_*.py"))
    parts = [files[at::jobs] for at in range(jobs)]
    code = "import pytest, mutants; pytest.main([*{}, '-q', '-m', 'not slow'], [mutants.Recorder()])"
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    running = [subprocess.Popen([sys.executable, "-c", code.format(part)], cwd=ROOT, env=environment) for part in parts]
    for process in running:
        process.wait()
    seconds, ran = {}, defaultdict(lambda: defaultdict(list))
    for file in FOLDER.glob("seconds-*.json"):
        seconds |= json.loads(file.read_text())
    for file in FOLDER.glob("lines-*"):
        data = coverage.CoverageData(basename=str(file))
        data.read()
        for name in data.measured_files():
            for line, tests in data.contexts_by_lineno(name).items():
                ran[os.path.relpath(name, ROOT)][line] += [test for test in tests if test in seconds]
    (FOLDER / "map.json").write_text(json.dumps({"seconds": seconds, "ran": ran}))


def mutants():
    """Every mutant of the product, by module and line."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for name, function in functions(ast.parse(path.read_bytes())):
                count = len(list(places(function)))
                code = digest(function) if count else ""
                yield from (Mutant(module, name, code, number) for number in range(count))


def found_again(file):
    """Mutant → (the same mutant in a file of results, the test that found it), for functions of the same code here."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    wanted = {Mutant(**one["mutant"]): one["by"] for one in lines if one["found"].startswith("found")}
    known = defaultdict(list)
    for mutant in mutants():
        known[mutant.function.rsplit(".", 1)[-1], mutant.code, mutant.number].append(mutant)
    again = {}
    for mutant, by in wanted.items():
        alike = known[mutant.function.rsplit(".", 1)[-1], mutant.code, mutant.number]
        same = [one for one in alike if one.module == mutant.module] or alike
        if same:
            again[same[0]] = mutant, by
    print(f"{len(wanted)} were found; {len(again)} of them stand in functions whose code is the same here")
    return again


class Finder:
    """A plugin of pytest: writes the name of the first test that fails."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid)


def tests_of(mutant, known, loaded, before):
    """The tests to try, as lists: each list only if the tests of the lists before it pass."""
    if before is None:
        path = os.path.relpath(path_of(mutant.module), ROOT)
        _, line, _ = mutated(path_of(mutant.module).read_bytes(), mutant)
        run = set(known["ran"].get(path, {}).get(str(line), ())) & set(loaded.tests)
        return [sorted(run, key=known["seconds"].get)[:MOST_TESTS]]
    file, _, name = before.partition("::")
    name, base = name.partition("[")[0], mutant.function.rsplit(".", 1)[-1]
    naming = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if base in path.read_text()
    }
    same = [test for test in loaded.tests if test.partition("::")[2].partition("[")[0] == name]
    of_file = [test for test in loaded.tests if test.startswith(f"{file}::")]
    hall = "/".join(["tests", *mutant.module.split(".")[: 2 if mutant.module.startswith("aggregator") else 1]])
    of_hall = [test for test in loaded.tests if test.startswith(hall)]
    of_others = [test for test in loaded.tests if test.partition("::")[0] in naming]
    exact = [before] if before in loaded.tests else []
    return [tests for tests in (exact, same[:MOST_TESTS], of_file, of_others, of_hall) if tests]


def tried(mutant, known, loaded, before=None):
    """Run the tests of one mutant in processes of its own; returns what became of it."""
    _, line, done = mutated(path_of(mutant.module).read_bytes(), mutant)
    result = {"mutant": asdict(mutant), "line": line, "done": done, "by": "", "found": "no test runs the line"}
    for tests in tests_of(mutant, known, loaded, before):
        result = {**result, "tests": len(tests), **_tried(mutant, loaded, tests)} if tests else result
        if result["found"].startswith("found"):
            break
    return result


def _tried(mutant, loaded, tests):
    finder = FOLDER / f"by-{os.getpid()}.txt"
    finder.unlink(missing_ok=True)
    begun, child = time.monotonic(), os.fork()
    if child == 0:
        _in_child(mutant, loaded, tests, finder)
    while time.monotonic() < begun + WAITING:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            by = finder.read_text() if finder.exists() else ""
            return {"by": by, "found": _outcome(os.waitstatus_to_exitcode(status))}
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"found": "found (time)"}


def _outcome(status):
    return "found (time)" if -status in {signal.SIGXCPU, signal.SIGKILL} else OUTCOMES.get(status, "found")


def _in_child(mutant, loaded, tests, finder):
    """Change the product, run the tests, and end the process with pytest's status."""
    status = NO_RUN
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    with open(FOLDER / f"child-{os.getppid()}.txt", "w") as said:  # noqa: PTH123 - its descriptor is needed
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            os.setpgid(0, 0)
            if loaded.change(mutant):
                status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], [Finder(finder)]))
        except BaseException:  # noqa: BLE001 - nothing of a child may go on in its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def run(count, seed, jobs, before):
    """Try mutants in a number of processes, each of which has the product and the tests loaded, a line for each."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    FOLDER.mkdir(parents=True, exist_ok=True)
    known = {} if before else json.loads((FOLDER / "map.json").read_text())
    again = found_again(before) if before else {}
    these = list(again) if before else random.Random(seed).sample(list(mutants()), count)
    loaded = Loaded()
    children = []
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            with (FOLDER / f"found-{job}.jsonl").open("w") as out:
                for mutant in these[job::jobs]:
                    was, by = again.get(mutant, (None, None))
                    named = {"was": asdict(was)} if was else {}
                    print(json.dumps({**tried(mutant, known, loaded, by), **named}), file=out, flush=True)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    lines = [line for job in range(jobs) for line in (FOLDER / f"found-{job}.jsonl").read_text().splitlines()]
    (FOLDER / "found.jsonl").write_text("\n".join(sorted(lines)) + "\n")
    compare([FOLDER / "found.jsonl"])


def compare(files):
    """Print a table of what became of the mutants, and those that the first file's tests alone find."""
    found = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    tables = [{Mutant(**one.get("was", one["mutant"])): one for one in lines} for lines in found]
    for file, table in zip(files, tables, strict=True):
        counts = defaultdict(int)
        for one in table.values():
            counts[one["found"]] += 1
        print(f"{file}: {len(table)} mutants;", ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    if len(tables) == 2:
        first = [mutant for mutant, one in tables[0].items() if one["found"].startswith("found")]
        both = [mutant for mutant in first if mutant in tables[1]]
        lost = [mutant for mutant in both if not tables[1][mutant]["found"].startswith("found")]
        for mutant in lost:
            print("lost:", tables[1][mutant], "was found by", tables[0][mutant]["by"])
        print(f"{len(first)} were found by the first tests; {len(both)} of them stand in the second tree too,")
        print(f"of which {len(lost)} are not found by the second tests")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["map", "run", "compare"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="the folder of the tests of a map")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="results of other tests: run the mutants that these found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.what == "map":
        make_map(given.jobs, given.tests.resolve())
    elif given.what == "run":
        run(given.count, given.seed, given.jobs, given.again)
    else:
        compare(given.files)


if __name__ == "__main__":
    main()
