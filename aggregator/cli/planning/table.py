"""``hearsay table``: a table of another program as a CSV file that every command reads. Run by the analyst."""

from __future__ import annotations

from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, say, warn, write_file


@click.command()
@click.argument("data", type=PATH, metavar="DATA")
@click.option("--separator", default=",", show_default=True, metavar="SIGN",
              help="Character between cells; tab for a tabulator.")  # fmt: skip
@click.option("--decimal", default=".", show_default=True, metavar="SIGN", help="Sign before decimals.")
@click.option("--thousands", default="", metavar="SIGN", help="Sign between thousands; default: none.")
@click.option("--encoding", default="utf-8", show_default=True, metavar="NAME", help="For example cp1252 or utf-16.")
@click.option("--sheet", metavar="NAME", help="Sheet of a workbook (.xlsx); default: its first one.")
@options.missing
@options.output
@options.force
@options.json
def table(
    data: Path,
    separator: str,
    decimal: str,
    thousands: str,
    encoding: str,
    sheet: str | None,
    missing: tuple[str, ...],
    output: Path,
) -> None:
    """Convert a table to the CSV file that all commands and devices read: commas, decimal points, UTF-8.

    DATA is a text file or a workbook (.xlsx, which needs the extra excel). Nothing is guessed. A column is converted if
    all its cells, but for missing ones, are numbers as the options write them; all other cells stay as they are.
    Devices hold the texts of a schema: give them the converted values, too.

    \b
    Example:
      hearsay table export.csv --separator ";" --decimal , --encoding cp1252 -o pilot.csv
      hearsay table survey.xlsx --sheet Answers -o pilot.csv
    """  # noqa: D301
    from aggregator.common.tables import Layout, csv_bytes, read_foreign_table

    check_files(output, inputs=[data])
    layout = Layout("\t" if separator == "tab" else separator, decimal, thousands, encoding, sheet)
    made = read_foreign_table(data, layout, missing)
    write_file(output, csv_bytes(made.frame))
    facts = {"records": len(made.frame), "columns": made.frame.shape[1]}
    converted = list(made.converted) if as_json() else ", ".join(made.converted) or "no column"
    say({**facts, "converted": converted, "written": str(output)})
    for line in made.doubts:
        warn(line)
