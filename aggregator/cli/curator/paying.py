"""Options of commands whose result may be private and is then paid from a curator's budget."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from aggregator.cli.options import PATH, together
from aggregator.cli.output import warn, wrong_usage
from aggregator.curator.accounting import parse_delta
from aggregator.curator.budget import BudgetFile
from protocol.epsilon import micro_epsilon

_OTHERS = 0o077


def open_budget(path: Path) -> BudgetFile:
    """Open a budget file, which the caller must close. Warn if others than its owner can read or write it."""
    opened = BudgetFile.open(path)
    if path.stat().st_mode & _OTHERS:
        warn(f"others than its owner can use '{path}', which holds the key of the records' digests: chmod 600")
    return opened


class Payment(NamedTuple):
    """The cost of a private result, ε in millionths and δ, and the path of the budget file that pays it."""

    epsilon_micro: int
    delta: Fraction
    budget: Path


def private_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--private``, ``--epsilon``, ``--delta`` and ``--budget``. The command gets ``payment``, or None.

    Wrong usage: ``--private`` without ε or a budget file, or one of the other options without ``--private``.
    """

    @wraps(command)
    def checked(*, private: bool, epsilon: str | None, delta: str | None, budget: Path | None, **rest: Any) -> Any:
        payment = None
        if private:
            if epsilon is None or budget is None:
                raise wrong_usage("--private needs --epsilon and --budget")
            payment = Payment(micro_epsilon(epsilon), parse_delta(delta or "0"), budget)
        elif any(given is not None for given in (epsilon, delta, budget)):
            raise wrong_usage("--epsilon, --delta and --budget go with --private")
        return command(payment=payment, **rest)

    return together(
        click.option("--private", is_flag=True, help="Make a differentially private result, paid from a budget."),
        click.option("--epsilon", help="With --private: ε of the result, in all."),
        click.option("--delta", help="With --private: δ of the result; default 0."),
        click.option("--budget", type=PATH, help="With --private: the budget file that pays; says the adjacency."),
    )(checked)
