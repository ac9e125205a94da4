"""``hearsay masked``: the dealer's folder, key books and releases."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.options import PATH, existing_passphrase, new_passphrase
from aggregator.cli.output import (
    as_json,
    check_files,
    counted,
    note,
    print_facts,
    print_json,
    print_table,
    say,
    warn,
    when,
    working,
    write_file,
)
from aggregator.common.databases import marks_beside
from aggregator.common.facts import Fact, said, stated
from aggregator.common.files import read_file
from aggregator.common.periods import parse_start, shown
from protocol.documents.envelope import SIZE_LIMITS
from protocol.errors import HearsayError, InputError
from protocol.masked.costs import least_parties, masked_terms_of
from protocol.masked.release import MAX_REQUEST_BYTES, parse_request

if TYPE_CHECKING:
    from aggregator.nodes.dealer.dealer import Dealer, ServedCampaign
    from aggregator.nodes.dealer.issuing import IssuedBook, ReleasedSum
    from aggregator.nodes.store.masked import MaskedStore


FOLDER = click.argument("folder", metavar="DEALER", type=PATH)
_MOST_NAMED = 8


@click.group()
def masked() -> None:
    """Sums that only a whole set of parties' messages decrypts: the dealer's part, and the aggregator's.

    Parties (hearsay-edge node) encrypt their noisy sums. The aggregator collects the messages and decrypts their total,
    never one party's numbers. For that a dealer, on another machine, made the parties' keys, and releases one total per
    period. The dealer is trusted for confidentiality: whoever has both the dealer's secret and the messages reads every
    party's numbers.

    \b
    Example:
      hearsay masked new dealer
      hearsay masked setup dealer c.hsc --nodes clinics.hsl --trust root.hst -o clinics.hsk
      hearsay masked request --store sums -o q.hsq
      hearsay masked release dealer q.hsq -o r.hsd
      hearsay masked decrypt --store sums r.hsd
    """  # noqa: D301


@masked.command()
@options.store
@click.option(
    "--period", metavar="P", help="Date or number of the period; default: the only one that is not decrypted."
)
@click.option("--again", is_flag=True, help="Ask for the parties of now; only if the dealer did not see a request yet.")
@options.output
@options.force
@options.json
def request(store: Path, period: str | None, output: Path, *, again: bool) -> None:
    """Write the request for the sum of a period: which parties sent a message. The dealer answers with a release.

    The dealer releases one set per period, for ever. So wait until all messages that you hope for are in the store. A
    second call writes the same request; messages that came since are not in it. --again makes a new one. If -o and
    --force name the file of an earlier request, that file is kept under a new name: if the dealer has seen it, only its
    set is released.

    \b
    Example:
      hearsay masked request --store sums --period 2026-11-01 -o q.hsq
    """  # noqa: D301
    from aggregator.nodes.store.opening import open_masked_store

    check_files(output)
    opened = open_masked_store(store)
    number = _period(opened, period)
    raw = opened.request(number, again=again)
    kept = _keep_other(output, raw)
    write_file(output, raw)
    if kept is not None:
        note(f"the earlier request is kept as '{kept}': if the dealer has seen it, only its set is released")
    asked = parse_request(raw)
    say(
        [
            Fact("file", str(output)),
            Fact("period", number, shown(number, opened.campaign.time_precision)),
            Fact("key_book", asked.version),
            Fact("parties", len(asked.parties)),
            Fact("listed_nodes", len(opened.node_list().nodes)),
        ]
    )
    later = opened.messages_in(number) - len(asked.parties)
    if later > 0:
        note(f"{counted(later, 'message')} of this period not in the request: of another key book, or later (--again)")


def _keep_other(output: Path, raw: bytes) -> Path | None:
    """Rename a file at ``output`` that holds another request; return its new path, or None if there is no such file."""
    try:
        present = read_file(output, MAX_REQUEST_BYTES)
        parse_request(present)
    except HearsayError:
        return None
    if present == raw:
        return None
    free = (output.with_name(f"{output.stem}.{number}{output.suffix}") for number in count(1))
    kept = next(path for path in free if not path.exists())
    write_file(kept, present, force=False)
    return kept


def _period(store: MaskedStore, text: str | None) -> int:
    """Return the period that an option names; without the option, the number of the only period not yet decrypted."""
    if text is not None:
        return parse_start(text).first(store.campaign.time_precision)
    waiting = store.waiting()
    if len(waiting) != 1:
        which = ", ".join(shown(each, store.campaign.time_precision) for each in waiting[-8:]) or "none"
        raise InputError(
            "period_needed", f"periods with messages that are not decrypted: {which}; choose with --period"
        )
    return waiting[0]


@masked.command()
@options.store
@click.argument("release", metavar="R.hsd", type=PATH)
@options.json
def decrypt(store: Path, release: Path) -> None:
    """Decrypt the sum of a period by the dealer's release, and keep it in the store.

    The release decrypts the sum of exactly the parties that it names, and nothing else. The same release again changes
    nothing. hearsay estimate and publish then go on from the sums of all decrypted periods.

    \b
    Example:
      hearsay masked decrypt --store sums r.hsd
    """  # noqa: D301
    from aggregator.nodes.store.opening import open_masked_store

    opened = open_masked_store(store)
    with working("decrypting the sum"):
        total = opened.decrypt(read_file(release, SIZE_LIMITS["release"]))
    say(
        [
            Fact("period", total.period, shown(total.period, opened.campaign.time_precision)),
            Fact("key_book", total.book.version),
            Fact("parties", total.parties, len(total.parties)),
            Fact("parties_of_book", len(total.book.parties)),
            Fact("numbers", len(total.numbers)),
        ]
    )


def _makes_book(function: Callable[..., IssuedBook]) -> Callable[..., None]:
    """Make a command from a function that makes a key book: add arguments and options, write the book and print it."""

    @click.argument("folder", metavar="DEALER", type=PATH)
    @click.argument("campaign", metavar="C.hsc", type=PATH)
    @click.option(
        "--nodes", "listed", type=PATH, required=True, metavar="L.hsl", help="Node list: its nodes are parties."
    )
    @click.option("--trust", "trusted", type=PATH, required=True, help="Trust root that must have signed both.")
    @options.together(options.output, options.passphrase, options.force, options.json)
    @wraps(function)
    def command(folder: Path, output: Path, **given: Path) -> None:
        from aggregator.nodes.dealer.dealer import Dealer

        check_files(output, inputs=[*_own_files(folder), *given.values()])
        with Dealer.open(folder, existing_passphrase()) as dealer:
            made = function(dealer, **given)
            write_file(output, made.raw)
        say(
            [
                Fact("file", str(output)),
                Fact("campaign", made.campaign.header.name),
                Fact("version", made.version),
                Fact("parties", made.parties),
                Fact("joined", made.joined, len(made.joined)),
                Fact("left", made.left, len(made.left)),
                Fact("other_new_keys", made.changed, len(made.changed)),
                Fact("bytes", len(made.raw)),
                Fact("fewest_parties", least_parties(masked_terms_of(made.campaign), made.parties)),
            ]
        )

    return command


@masked.command()
@FOLDER
@options.passphrase
@options.no_passphrase
@options.json
def new(folder: Path) -> None:
    """Make a dealer: a secret, and the public file dealer.pub, which masked campaigns name.

    The folder must not exist, or be empty. It is not on the aggregator's machine, and never inside of a workspace or
    store. The secret is encrypted under a passphrase, which is asked for. The two primes behind the public modulus are
    not kept.

    \b
    Example:
      hearsay masked new dealer
    """  # noqa: D301
    from aggregator.nodes.dealer.dealer import PUBLIC_FILE, Dealer

    passphrase = new_passphrase(what="the dealer")
    with working("making the modulus"), Dealer.create(folder, passphrase=passphrase) as made:
        facts = [Fact("dealer", str(folder)), Fact("public_file", str(folder / PUBLIC_FILE))]
        facts += [Fact("key", made.public.key, made.public.id), Fact("encrypted", passphrase is not None)]
    say(facts)
    note(
        f"give {PUBLIC_FILE} to the publisher, who compares the key; back the folder up, and never use two copies: a "
        "copy is refused, and so is a restored backup (hearsay masked adopt)"
    )


@masked.command()
@_makes_book
def setup(dealer: Dealer, **given: Path) -> IssuedBook:
    """Make the keys of all parties of a masked campaign, once, as a key book for everybody.

    The book holds a key for every node on the list, sealed so that only this node can open it. Hand the file to the
    nodes and the aggregator. hearsay masked rekey writes the present book again.

    \b
    Example:
      hearsay masked setup dealer c.hsc --nodes clinics.hsl --trust root.hst -o clinics.hsk
    """  # noqa: D301
    return dealer.setup(**given)


@masked.command()
@_makes_book
def rekey(dealer: Dealer, **given: Path) -> IssuedBook:
    """Make the key book for a newer node list: nodes joined or left.

    Who joins gets a key, and for each join or leave at most two other parties get a new one. All others keep theirs.
    Hand the book to all nodes and the aggregator. With the list of the present book, the same book is written again.

    \b
    Example:
      hearsay masked rekey dealer c.hsc --nodes clinics2.hsl --trust root.hst -o clinics2.hsk
    """  # noqa: D301
    return dealer.rekey(**given)


@masked.command()
@FOLDER
@click.argument("asked", metavar="Q.hsq", type=PATH)
@options.output
@click.option(
    "--at-least",
    type=click.IntRange(0, 1 << 16),
    default=0,
    metavar="N",
    help="Refuse a set of fewer parties; default: the campaign's rule alone.",
)
@options.passphrase
@options.force
@options.json
def release(folder: Path, asked: Path, output: Path, at_least: int) -> None:
    """Release the sum of one set of parties for one period: what the aggregator needs to decrypt that sum alone.

    There is one set per period, for ever: two sums that differ by a party tell that party's numbers. The set is written
    to the journal before the release leaves. The same request again gets the same release. Nobody signs a request, so
    take it from the aggregator, look at the missing parties, and use --at-least: a set that was released too early
    can not be made larger.

    \b
    Example:
      hearsay masked release dealer q.hsq --at-least 18 -o r.hsd
    """  # noqa: D301
    from aggregator.nodes.dealer.dealer import Dealer

    check_files(output, inputs=[*_own_files(folder), asked])
    with Dealer.open(folder, existing_passphrase()) as dealer, working("making the release"):
        made = dealer.release(asked, at_least=at_least)
        write_file(output, made.raw)
    _say_release(made, output)


@masked.command()
@FOLDER
@options.json
def adopt(folder: Path) -> None:
    """Go on with a copy of a dealer's folder: a restored backup, or a folder that was moved to another disk.

    A copy is refused until this command says that it is the dealer now, also if the backup was written over the old
    folder. An older state of the whole disk or virtual machine is not noticed: run this command before any release.

    Only if no other copy is in use any more. What the other copy released since is not known here, so this copy
    releases nothing new for periods that have begun. It begins with the next period of each campaign.

    \b
    Example:
      hearsay masked adopt dealer
    """  # noqa: D301
    from aggregator.nodes.dealer.dealer import Dealer

    with Dealer.adopt(folder) as dealer:
        served = dealer.served()
    first = {each.campaign.header.name: each.row.first_period for each in served}
    say([Fact("dealer", str(folder)), stated("first_periods", first), said("campaigns", len(served))])
    if as_json():
        return
    for name, period in first.items():
        note(f"campaign {name}: releases begin with period {period}")


@masked.command()
@FOLDER
@options.json
def show(folder: Path) -> None:
    """Show a dealer: its public key, the campaigns with their key books, and every set that was released.

    \b
    Example:
      hearsay masked show dealer
    """  # noqa: D301
    from aggregator.nodes.dealer.dealer import Dealer

    with Dealer.open(folder) as dealer:
        public, served = dealer.public, dealer.served()
    if as_json():
        print_json({"key": public.key, "modulus": f"{public.modulus:x}", "campaigns": [_json(each) for each in served]})
        return
    print_facts({"dealer": public.id, "key": public.key.hex(), "campaigns": len(served)})
    for each in served:
        _print_campaign(each)


def _own_files(folder: Path) -> list[Path]:
    from aggregator.nodes.dealer.dealer import JOURNAL_FILE, KEY_FILE, PUBLIC_FILE

    journal = folder / JOURNAL_FILE
    marks = marks_beside(journal) if folder.is_dir() else []
    return [journal, folder / KEY_FILE, folder / PUBLIC_FILE, *marks]


def _say_release(made: ReleasedSum, output: Path) -> None:
    asked = made.request
    say(
        [
            Fact("file", str(output)),
            Fact("campaign", made.campaign.header.name),
            Fact("period", asked.period),
            Fact("key_book", asked.version),
            Fact("parties", asked.parties, len(asked.parties)),
            Fact("missing", made.missing, len(made.missing)),
            Fact("repeated", made.repeated, "yes: the same bytes as before" if made.repeated else "no"),
        ]
    )
    if made.missing and not as_json():
        named = ", ".join(node.hex() for node in made.missing[:_MOST_NAMED])
        more = " …" if len(made.missing) > _MOST_NAMED else ""
        warn(f"{counted(len(made.missing), 'party is', '')} not in the sum of this period, for ever: {named}{more}")


def _json(served: ServedCampaign) -> dict[str, Any]:
    releases = [
        {**each._asdict(), "campaign": served.campaign.id, "parties": len(each.parties) // 8}
        for each in served.releases
    ]
    return {
        "campaign": served.campaign.header.name,
        "id": served.campaign.id,
        "list_version": served.row.list_version,
        "first_period": served.row.first_period,
        "books": [each._asdict() for each in served.books],
        "releases": releases,
    }


def _print_campaign(served: ServedCampaign) -> None:
    click.echo()
    facts: dict[str, object] = {
        "campaign": served.campaign.header.name,
        "id": served.campaign.id.hex(),
        "key book": f"version {served.row.version}, of node list version {served.row.list_version}",
    }
    if served.row.first_period:
        facts["adopted"] = f"nothing new is released for periods before {served.row.first_period}"
    print_facts(facts)
    print_table(
        ("key book", "node list", "parties", "made"),
        [(each.version, each.list_version, each.parties, when(each.made_at)) for each in served.books],
        numeric=("key book", "node list", "parties"),
    )
    if served.releases:
        print_table(
            ("period", "key book", "parties", "released"),
            [(each.period, each.version, len(each.parties) // 8, when(each.released_at)) for each in served.releases],
            numeric=("period", "key book", "parties"),
        )
