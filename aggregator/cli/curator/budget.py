"""``hearsay budget``: the curator's ledger of ε and δ: make it, assign records to it, show it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.curator.paying import open_budget
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, counted, note, print_facts, print_json, print_table, say, when, working
from aggregator.common.facts import Fact
from aggregator.curator.accounting import parse_delta
from aggregator.curator.budget import BudgetState, Query
from protocol.epsilon import format_micro, micro_epsilon
from protocol.questions import ADJACENCIES, CHANGE


@click.group()
def budget() -> None:
    """What a curator may publish about the people in her records, in all: one file, one total of ε and δ.

    A budget belongs to people. Every table of records about these people is assigned to it, and all that is published
    from any of them adds up: hearsay fit refuses what would exceed the total. Records that were never assigned are
    refused, so one more row buys nothing.

    Keep the file where only you can read it, and make one budget for the same people only: the file can not know of
    another. The empty file BUDGET.hsb.*.mark beside it belongs to it. A copy, or an older file that was restored, can
    be shown, and pays for nothing until it is adopted.

    \b
    Example:
      hearsay budget new ward.hsb --name "ward 7" --epsilon 1 --adjacency change
      hearsay budget assign ward.hsb patients.csv --note "all patients of 2026"
      hearsay budget show ward.hsb
    """  # noqa: D301


@budget.command()
@click.argument("file", type=PATH, metavar="BUDGET.hsb")
@click.option("--name", required=True, help="Whose budget it is; models state this name.")
@click.option("--epsilon", required=True, help="ε of everything that is ever published, for example 1.")
@click.option("--delta", default="0", show_default=True, help="δ of everything that is ever published.")
@click.option(
    "--concentrated-delta",
    help="Part of δ for concentrated accounting, which makes many small queries cheaper; default: half of δ.",
)
@click.option(
    "--adjacency",
    type=click.Choice(ADJACENCIES),
    default=CHANGE,
    show_default=True,
    help="What is hidden: that one record is there; what one record says (the number of records is public); or what "
    "its features say (the sizes of the classes are public).",
)
@options.json
def new(file: Path, name: str, epsilon: str, delta: str, concentrated_delta: str | None, adjacency: str) -> None:
    """Make a budget file. Its totals can not be raised later.

    \b
    Example:
      hearsay budget new ward.hsb --name "ward 7" --epsilon 1
      hearsay budget new trial.hsb --name trial --epsilon 2 --delta 1e-6 --adjacency change
    """  # noqa: D301
    from aggregator.curator.budget import BudgetFile

    reserved = None if concentrated_delta is None else parse_delta(concentrated_delta)
    with BudgetFile.create(
        file,
        name=name,
        epsilon_micro=micro_epsilon(epsilon),
        delta=parse_delta(delta),
        concentrated_delta=reserved,
        adjacency=adjacency,
    ) as made:
        _print(file, made.state())
    note("no records are assigned yet: see hearsay budget assign")


@budget.command()
@click.argument("file", type=PATH, metavar="BUDGET.hsb")
@click.argument("data", type=PATH, metavar="DATA.csv")
@click.option("--note", "text", default="", help="What the records are, for yourself.")
@options.json
def assign(file: Path, data: Path, text: str) -> None:
    """Say that the records of DATA.csv are about the people of a budget.

    The file keeps a keyed digest of the records and nothing else of them. The order of rows and columns makes no
    difference; one more row makes other records, which are assigned anew. What was spent stays spent.

    \b
    Example:
      hearsay budget assign ward.hsb patients.csv --note "all patients of 2026"
    """  # noqa: D301
    from aggregator.common.tables import read_table
    from aggregator.curator.budget import record_bytes

    with open_budget(file) as opened:
        with working("reading the records"):
            frame = read_table(data)
            digest = opened.digest(record_bytes(frame))
        is_new = opened.assign(digest, text)
        state = opened.state()
    say(
        [
            Fact("budget", state.name),
            Fact("records", len(frame)),
            Fact("digest", digest.hex(), digest.hex()[:16]),
            Fact("assigned", is_new, "yes" if is_new else "already before"),
        ]
    )


@budget.command()
@click.argument("file", type=PATH, metavar="BUDGET.hsb")
@click.option("--nothing-since", is_flag=True, help="You know that nothing was paid since this copy was made.")
@options.json
def adopt(file: Path, *, nothing_since: bool) -> None:
    """Go on with a budget file that was copied, moved to another place or restored. No other copy may be used any more.

    Other copies may have paid for queries that this one does not know. So its whole total counts as spent, unless you
    say that nothing was paid since, for example after a move to another disk.

    \b
    Example:
      hearsay budget adopt moved/ward.hsb --nothing-since
      hearsay budget adopt restored/ward.hsb
    """  # noqa: D301
    from aggregator.curator.budget import BudgetFile

    with BudgetFile.adopt(file, nothing_since=nothing_since) as opened:
        _print(file, opened.state())


@budget.command()
@click.argument("file", type=PATH, metavar="BUDGET.hsb")
@options.json
def show(file: Path) -> None:
    """Show the total, every query, and what is left. No record can be told from it, and no key is shown.

    \b
    Example:
      hearsay budget show ward.hsb
    """  # noqa: D301
    with open_budget(file) as opened:
        _print(file, opened.state())


def _print(file: Path, state: BudgetState) -> None:
    if as_json():
        print_json(_json(state))
        return
    total, spent, left = state.total, state.spent, state.left
    concentrated = total.concentrated_epsilon(spent)
    facts = {
        "budget": f"{state.name}, in {file}",
        "hides": f"neighbours by '{state.adjacency}'",
        "total": f"ε = {format_micro(total.epsilon_micro)}, δ = {_shown(total.delta)}",
        "spent": f"ε = {format_micro(spent.epsilon_micro)}, δ = {_shown(spent.delta)} by basic composition",
    }
    if concentrated is not None:
        facts["concentrated"] = (
            f"ε = {concentrated:.6g} by ρ = {float(spent.rho):.6g}, δ = {_shown(total.concentrated_delta)}"
        )
    if state.closed_at:
        facts["adopted"] = f"{when(state.closed_at)}: the whole total counts as spent"
    facts["left"] = f"ε = {format_micro(left.epsilon_micro)}, δ = {_shown(left.delta)} for one more query"
    facts["records"] = counted(len(state.data), "assigned set")
    print_facts(facts)
    if state.data:
        rows = [(n, when(one.assigned_at), one.digest.hex()[:16], one.note) for n, one in enumerate(state.data, 1)]
        click.echo()
        print_table(["set", "assigned", "digest", "note"], rows, numeric=["set"])
    if state.queries:
        queries = [(n, *_row(one)) for n, one in enumerate(state.queries, 1)]
        click.echo()
        print_table(["query", "paid", "set", "ε", "δ", "what"], queries, numeric=["query", "set", "ε", "δ"])


def _row(query: Query) -> tuple[object, ...]:
    cost = query.cost
    return when(query.spent_at), query.data + 1, format_micro(cost.epsilon_micro), _shown(cost.delta), query.query


def _json(state: BudgetState) -> dict[str, Any]:
    total, spent, left = state.total, state.spent, state.left
    return {
        "name": state.name,
        "adjacency": state.adjacency,
        "made_at": state.made_at,
        "closed_at": state.closed_at,
        "epsilon": format_micro(total.epsilon_micro),
        "delta": float(total.delta),
        "concentrated_delta": float(total.concentrated_delta),
        "epsilon_spent": format_micro(spent.epsilon_micro),
        "delta_spent": float(spent.delta),
        "rho_spent": float(spent.rho),
        "epsilon_concentrated": total.concentrated_epsilon(spent),
        "epsilon_left": format_micro(left.epsilon_micro),
        "delta_left": float(left.delta),
        "rho_left": float(left.rho),
        "data": [{"digest": one.digest.hex(), "note": one.note, "assigned_at": one.assigned_at} for one in state.data],
        "queries": [
            {
                "data": one.data,
                "query": one.query,
                "epsilon": format_micro(one.cost.epsilon_micro),
                "delta": float(one.cost.delta),
                "rho": None if one.cost.rho is None else float(one.cost.rho),
                "spent_at": one.spent_at,
            }
            for one in state.queries
        ],
    }


def _shown(number: Fraction) -> str:
    return f"{float(number):g}"
