"""Commands of ``hearsay`` that another package might register."""

import click

NUMBER = 7


@click.command()
def greet():
    """Say hello."""
    click.echo("hello")


@click.command(short_help="Another line.")
def short():
    """The docstring, which the list does not show."""


@click.command(hidden=True)
def hidden():
    """The list leaves this command out."""


@click.command("bare", click.Group)
def bare():
    """A group of another class."""


made = click.Command("made", help="Made without a decorator.")
