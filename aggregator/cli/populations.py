"""Which population a number is about: the notes below tables, and the option ``--fleet`` that makes them exact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.output import print_facts
from aggregator.cli.passphrase import passphrase_option, read_passphrase

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.estimates.recurrence import Recurrence
    from aggregator.fleet.roster import Roster


def fleet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``lists`` and ``passphrase_file``: what :func:`rosters_of` takes."""
    text = "Fleet list of a closed fleet: how often each device answered is then known; several are one fleet."
    lists = click.option("--fleet", "lists", type=click.Path(path_type=Path), multiple=True,
                         metavar="LIST.hsf", help=text)  # fmt: skip
    return lists(passphrase_option(command))


def rosters_of(lists: tuple[Path, ...], passphrase_file: Path | None) -> list[Roster]:
    """The fleet lists that are named; none if there are none.

    Raises:
        InputError: the reasons of a fleet list that does not open.
    """
    if not lists:
        return []
    from aggregator.fleet.roster import read_roster

    passphrase = read_passphrase(passphrase_file, what="the fleet list")
    return [read_roster(path, passphrase) for path in lists]


def print_populations(recurrence: Recurrence) -> None:
    """Say which population is which, and what the second one's intervals rest on."""
    from aggregator.estimates.recurrence import BOUND, DEVICES, POPULATION

    click.echo()
    advice = "; --fleet LIST.hsf tells, in a closed fleet" if recurrence.basis == BOUND else ""
    print_facts(
        {
            "these devices": DEVICES,
            "population": POPULATION,
            "assumed": f"{recurrence.assumption}{advice}",
        }
    )
