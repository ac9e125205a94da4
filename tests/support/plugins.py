"""What another package might register as commands of ``hearsay``."""

import click

NUMBER = 7


@click.command()
def greet():
    """Say hello."""
    click.echo("hello")
