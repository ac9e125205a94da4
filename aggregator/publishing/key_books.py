"""Key books of masked campaigns in a published folder: which campaign a book is for, and which book is newer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aggregator.common.files import read_file
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError, InputError, StorageError
from protocol.masked.fields import largest_file
from protocol.masked.keys import ROLE, read_key_book


def campaign_of(book: bytes, campaigns: Sequence[Campaign]) -> Campaign:
    """The masked campaign whose dealer signed a key book.

    Args:
        book: the bytes of the book (``.hsk``).
        campaigns: the campaigns that may be meant. Those without a dealer are passed over.

    Raises:
        DocumentError: ``unrecognized_campaign``: the book is for none of the campaigns; or the reason why the book of
            one of them can not be read.
    """
    problem = DocumentError(
        "unrecognized_campaign", "the key book is for no masked campaign in this folder; publish its campaign first"
    )
    for campaign in campaigns:
        if campaign.masked is None:
            continue
        try:
            read_key_book(book, campaign)
        except DocumentError as error:
            # "malformed" and "bad_signature" are the reasons for a book of another campaign or dealer.
            if error.reason not in ("malformed", "bad_signature", "unrecognized_campaign"):
                problem = error
        else:
            return campaign
    raise problem


def check_book_not_newer(path: Path, book: bytes, campaign: Campaign) -> None:
    """Refuse to replace a key book by an older one, or by another one of its version: parties would refuse it.

    A file that is no key book of the campaign may be replaced.

    Args:
        path: the file in the published folder; it need not exist.
        book: the bytes of the new book, which was read with the same campaign.
        campaign: the book's campaign.

    Raises:
        StorageError: ``tree_newer``.
    """
    try:
        present = read_key_book(read_file(path, largest_file(ROLE, campaign)), campaign)
    except (DocumentError, InputError):
        return
    new = read_key_book(book, campaign)
    if present.version > new.version or (present.version == new.version and present.identity != new.identity):
        raise StorageError(
            "tree_newer",
            f"'{path}' is version {present.version} of the key book, and the given one is another version "
            f"{new.version}; ask the dealer for the newest one",
        )
