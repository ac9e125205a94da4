"""The tree of errors: one class for each thing a caller can do about it.

    HearsayError
    ├── InputError      an argument of ours is wrong: correct the call, the record, the schema, the file
    ├── DocumentError   a signed document is not acceptable: ask whoever published it
    ├── PolicyError     the owner's rules do not allow it: only the owner can change that
    └── StorageError    state, store, workspace or source cannot be used as it is: look at the disk, or the network

Every error has a ``reason``: a stable word that programs may branch on and that starts the text.
No error text contains a value of a record: it may name a feature, a position or a file.
"""

from __future__ import annotations


class HearsayError(Exception):
    """Base of all errors that this project raises on purpose.

    Attributes:
        reason: stable, lower case, words joined by ``_``; documented in ``docs/reasons.md``.
        detail: one sentence for a person, saying what to do next where that is known.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class InputError(HearsayError, ValueError):
    """An argument, record, schema or data file is wrong. Nothing was changed."""


class DocumentError(HearsayError):
    """A signed document is malformed, not signed by trusted keys, out of date or asks too much."""


class PolicyError(HearsayError):
    """The owner's local policy, or what is left of the privacy budget, does not allow it."""


class StorageError(HearsayError):
    """A state, store, workspace or source is missing, busy, damaged, out of reach or made by newer software."""
