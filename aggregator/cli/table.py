"""The commands of ``hearsay`` in this package: name → ``module:attribute`` of the command's function.

Commands are in the order in which a campaign needs them, and ``docs/reference/cli.md`` keeps that order.
``hearsay --help`` sorts them by name. The module of a command is imported when the command runs.

How to add a command: ``docs/how-to/extending.md``.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "init": "aggregator.cli.documents.init:init",
    "key": "aggregator.cli.documents.key:key",
    "trust": "aggregator.cli.documents.trust:trust",
    "table": "aggregator.cli.documents.table:table",
    "schema": "aggregator.cli.documents.schema:schema",
    "projection": "aggregator.cli.documents.projection:projection",
    "design": "aggregator.cli.documents.design:design",
    "plan": "aggregator.cli.documents.plan:plan",
    "campaign": "aggregator.cli.documents.campaign:campaign",
    "nodes": "aggregator.cli.nodes.nodes:nodes",
    "masked": "aggregator.cli.masked.masked:masked",
    "sign": "aggregator.cli.documents.sign:sign",
    "show": "aggregator.cli.documents.show:show",
    "verify": "aggregator.cli.documents.verify:verify",
    "guarantee": "aggregator.cli.documents.guarantee:guarantee",
    "fleet": "aggregator.cli.reports.fleet:fleet",
    "budget": "aggregator.cli.curator.budget:budget",
    "fit": "aggregator.cli.curator.fit:fit",
    "merge": "aggregator.cli.reports.merge:merge",
    "ingest": "aggregator.cli.reports.ingest:ingest",
    "quarantine": "aggregator.cli.reports.quarantine:quarantine",
    "status": "aggregator.cli.reports.status:status",
    "estimate": "aggregator.cli.reports.estimate:estimate",
    "export": "aggregator.cli.reports.export:export",
    "forget": "aggregator.cli.reports.forget:forget",
    "publish": "aggregator.cli.documents.publish:publish",
    "renew": "aggregator.cli.documents.renew:renew",
    "serve": "aggregator.cli.documents.serve:serve",
    "predict": "aggregator.cli.models.predict:predict",
    "diff": "aggregator.cli.models.diff:diff",
    "export-model": "aggregator.cli.models.export_model:export_model",
    "evaluate": "aggregator.cli.reports.evaluate:evaluate",
    "report": "aggregator.cli.reports.report:report",
    "refine": "aggregator.cli.reports.refine:refine",
}
