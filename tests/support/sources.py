"""A source of documents in memory that fails at chosen calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from edge_sdk.transport.base import Found
from protocol.errors import HearsayError, StorageError


class Cut(BaseException):  # BaseException: no handler of the device may catch it
    """The device's process ends here, as by a power failure."""


@dataclass
class Source:
    """Places and their contents. ``failures`` maps the number of a call, from 0, to its failure.

    A failure is ``before`` (the call has no effect), ``after`` (the call has its effect, but its answer is lost), or
    ``cut`` and ``cut after``: the same, and the device's process ends.
    """

    places: dict[str, bytes | HearsayError] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    address: str = "memory"

    def publish(self, folder):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.places[path.relative_to(folder).as_posix()] = path.read_bytes()

    @property
    def reports(self):
        return {place: content for place, content in self.places.items() if place.startswith("reports/")}

    def fetch(self, place, limit, tag=""):
        with self.failing("fetch", place):
            found = self.places.get(place)
        if isinstance(found, HearsayError):
            raise found
        if found is None:
            return None
        now = f"tag of {hash(found)}"
        return Found(None, tag) if tag == now else Found(found[: limit + 1], now)

    def send(self, place, path):
        with self.failing("send", place):
            try:
                content = Path(path).read_bytes()
            except OSError:
                raise StorageError("io_failed", "the file can not be read") from None
            assert self.places.setdefault(place, content) == content

    def failing(self, what, place):
        self.calls.append((what, place))
        return Failing(self.failures.get(len(self.calls) - 1, ""))


class Failing:
    """Fails before or after its body."""

    def __init__(self, how):
        self.how = how

    def __enter__(self):
        if self.how == "before":
            raise StorageError("unreachable", "made so by a test")
        if self.how == "cut":
            raise Cut

    def __exit__(self, kind, *_):
        if kind is None and self.how == "after":
            raise StorageError("unreachable", "made so by a test, after it was done")
        if kind is None and self.how == "cut after":
            raise Cut
