"""``hearsay masked request``: the aggregator asks the dealer for the sum of a period."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.options import force_option, json_option, output_option, store_option
from aggregator.cli.output import counted, note, say
from aggregator.common.files import check_output, read_file, write_output
from aggregator.common.periods import shown
from protocol.errors import HearsayError, InputError

if TYPE_CHECKING:
    from aggregator.nodes.masked.store import MaskedStore


@click.command()
@store_option
@click.option(
    "--period", metavar="P", help="Date or number of the period; default: the only one that is not decrypted."
)
@click.option("--again", is_flag=True, help="Ask for the parties of now; only if the dealer did not see a request yet.")
@output_option
@force_option
@json_option
def request(store: Path, period: str | None, output: Path, *, again: bool, force: bool, as_json: bool) -> None:
    """Write the request for the sum of a period: which parties sent a message. The dealer answers with a release.

    The dealer releases one set per period, for ever. So wait until all messages that you hope for are in the store. A
    second call writes the same request; messages that came since are not in it. --again makes a new one. If -o and
    --force name the file of an earlier request, that file is kept under a new name: if the dealer has seen it, only its
    set is released.

    \b
    Example:
      hearsay masked request --store sums --period 2026-11-01 -o q.hsq
    """  # noqa: D301
    from aggregator.nodes.masked.stores import open_masked_store
    from protocol.masked.release import parse_request

    check_output(output, force=force)
    opened = open_masked_store(store)
    number = _period(opened, period)
    raw = opened.request(number, again=again)
    kept = _keep_other(output, raw)
    write_output(output, raw, force=force)
    if kept is not None:
        note(f"the earlier request is kept as '{kept}': if the dealer has seen it, only its set is released")
    asked = parse_request(raw)
    listed = len(opened.node_list().nodes)
    facts: dict[str, Any] = {
        "file": str(output),
        "period": number if as_json else shown(number, opened.campaign.time_precision),
        "key_book": asked.version,
        "parties": len(asked.parties),
        "listed_nodes": listed,
    }
    say(facts, as_json=as_json)
    later = opened.messages_in(number) - len(asked.parties)
    if later > 0:
        note(f"{counted(later, 'message')} of this period not in the request: of another key book, or later (--again)")


def _keep_other(output: Path, raw: bytes) -> Path | None:
    """Rename the file of another request that is at the place of an output; return its new path.

    Returns None if there is no file, or if it is no request or the same one.
    """
    from protocol.masked.release import MAX_REQUEST_BYTES, parse_request

    try:
        present = read_file(output, MAX_REQUEST_BYTES)
        parse_request(present)
    except HearsayError:
        return None
    if present == raw:
        return None
    free = (output.with_name(f"{output.stem}.{number}{output.suffix}") for number in count(1))
    kept = next(path for path in free if not path.exists())
    write_output(kept, present)
    return kept


def _period(store: MaskedStore, text: str | None) -> int:
    """The number of the period that an option names.

    Raises:
        InputError: ``periods_invalid``; ``period_needed``: no text, and not exactly one period is not decrypted.
    """
    if text is not None:
        from aggregator.common.periods import parse_start

        return parse_start(text).first(store.campaign.time_precision)
    waiting = store.waiting()
    if len(waiting) != 1:
        which = ", ".join(shown(each, store.campaign.time_precision) for each in waiting[-8:]) or "none"
        raise InputError(
            "period_needed", f"periods with messages that are not decrypted: {which}; choose with --period"
        )
    return waiting[0]
