"""The classes of errors. The class says who can remove the cause.

    HearsayError
    ├── InputError      a wrong argument: the caller corrects the call, the record, the schema or the file
    ├── DocumentError   an unacceptable signed document: ask its publisher
    ├── PolicyError     the owner's rules forbid the request: only the owner can change the rules
    └── StorageError    an unusable state, store, workspace or source: check the disk or the network

Every error has a ``reason``: a stable word at the start of the text, on which programs may branch. No error text
contains a value of a record. A text may name a feature, a position or a file.
"""

from __future__ import annotations


class HearsayError(Exception):
    """Base class of all errors that this project raises on purpose.

    Attributes:
        reason: a stable identifier in lower case; ``docs/reference/reasons.md`` lists all of them.
        detail: one sentence for a person. It says what to do next if that is known.
        status: exit status of a program that ends with this error (docs/reference/output.md).
    """

    status = 1

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class InputError(HearsayError, ValueError):
    """An argument, record, schema or data file is wrong. The caller corrects it and calls again."""


class DocumentError(HearsayError):
    """A signed document is malformed, not signed by trusted keys, out of date, or has values beyond a limit."""

    status = 3


class PolicyError(HearsayError):
    """The owner's local policy or the remaining privacy budget does not allow the request."""

    status = 4


class StorageError(HearsayError):
    """A state, store, workspace or source is missing, busy, damaged, out of reach or made by newer software."""

    status = 5
