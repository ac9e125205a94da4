"""All commands of ``hearsay`` in this package: each name, and the place of its command, as in an entry point.

The order is that of a campaign's life. ``docs/cli.md`` has the same order; ``hearsay --help`` sorts by name. A
command's module is imported when the command is asked for.

How a command is added: ``docs/extending.md``.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "init": "aggregator.cli.documents.init:init",
    "key": "aggregator.cli.documents.key:key",
    "trust": "aggregator.cli.documents.trust:trust",
    "schema": "aggregator.cli.documents.schema:schema",
    "projection": "aggregator.cli.documents.projection:projection",
    "campaign": "aggregator.cli.documents.campaign:campaign",
    "sign": "aggregator.cli.documents.sign:sign",
    "show": "aggregator.cli.documents.show:show",
    "verify": "aggregator.cli.documents.verify:verify",
    "fleet": "aggregator.cli.reports.fleet:fleet",
    "merge": "aggregator.cli.reports.merge:merge",
    "ingest": "aggregator.cli.reports.ingest:ingest",
    "quarantine": "aggregator.cli.reports.quarantine:quarantine",
    "status": "aggregator.cli.reports.status:status",
    "estimate": "aggregator.cli.reports.estimate:estimate",
    "export": "aggregator.cli.reports.export:export",
    "forget": "aggregator.cli.reports.forget:forget",
    "publish": "aggregator.cli.documents.publish:publish",
    "serve": "aggregator.cli.documents.serve:serve",
    "predict": "aggregator.cli.documents.predict:predict",
    "evaluate": "aggregator.cli.reports.evaluate:evaluate",
}
