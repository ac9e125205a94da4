"""``hearsay masked decrypt``: the aggregator decrypts the sum of a period by the dealer's release."""

from __future__ import annotations

from pathlib import Path

import click

from aggregator.cli.options import PATH, json_option, store_option
from aggregator.cli.output import print_json, say, working
from aggregator.common.files import read_file
from aggregator.common.periods import shown


@click.command()
@store_option
@click.argument("release", metavar="R.hsd", type=PATH)
@json_option
def decrypt(store: Path, release: Path, *, as_json: bool) -> None:
    """Decrypt the sum of a period by the dealer's release, and keep it in the store.

    The release decrypts the sum of exactly the parties that it names, and nothing else. The same release again changes
    nothing. hearsay estimate and publish then go on from the sums of all decrypted periods.

    \b
    Example:
      hearsay masked decrypt --store sums r.hsd
    """  # noqa: D301
    from aggregator.nodes.masked.stores import open_masked_store
    from protocol.documents.envelope import SIZE_LIMITS

    opened = open_masked_store(store)
    with working("decrypting the sum"):
        total = opened.decrypt(read_file(release, SIZE_LIMITS["release"]))
    facts = {
        "period": total.period if as_json else shown(total.period, opened.campaign.time_precision),
        "key_book": total.book.version,
        "parties": len(total.parties),
        "parties_of_book": len(total.book.parties),
        "numbers": len(total.numbers),
    }
    if as_json:
        print_json({**facts, "parties": total.parties})
        return
    say(facts, as_json=False)
