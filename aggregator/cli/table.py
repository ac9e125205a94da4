"""The commands of ``hearsay`` in this package: name → ``module:attribute`` of the command's function.

Commands are in the order in which a campaign needs them. A command's module is imported when the command runs. How to
add a command: ``docs/how-to/extending.md``.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "init": "aggregator.cli.publishing.init:init",
    "key": "aggregator.cli.publishing.key:key",
    "trust": "aggregator.cli.publishing.trust:trust",
    "table": "aggregator.cli.planning.table:table",
    "schema": "aggregator.cli.planning.schema:schema",
    "projection": "aggregator.cli.planning.projection:projection",
    "design": "aggregator.cli.planning.design:design",
    "plan": "aggregator.cli.planning.plan:plan",
    "campaign": "aggregator.cli.publishing.campaign:campaign",
    "nodes": "aggregator.cli.nodes.nodes:nodes",
    "masked": "aggregator.cli.nodes.masked:masked",
    "collector": "aggregator.cli.collectors:collector",
    "sign": "aggregator.cli.publishing.sign:sign",
    "show": "aggregator.cli.publishing.show:show",
    "verify": "aggregator.cli.publishing.verify:verify",
    "guarantee": "aggregator.cli.publishing.guarantee:guarantee",
    "fleet": "aggregator.cli.reports.fleet:fleet",
    "budget": "aggregator.cli.curator.budget:budget",
    "fit": "aggregator.cli.curator.fit:fit",
    "count": "aggregator.cli.curator.count:count",
    "merge": "aggregator.cli.reports.merge:merge",
    "ingest": "aggregator.cli.reports.ingest:ingest",
    "quarantine": "aggregator.cli.reports.quarantine:quarantine",
    "status": "aggregator.cli.reports.status:status",
    "estimate": "aggregator.cli.reports.estimate:estimate",
    "export": "aggregator.cli.reports.export:export",
    "forget": "aggregator.cli.reports.forget:forget",
    "publish": "aggregator.cli.publishing.publish:publish",
    "renew": "aggregator.cli.publishing.renew:renew",
    "serve": "aggregator.cli.publishing.serve:serve",
    "predict": "aggregator.cli.models.predict:predict",
    "diff": "aggregator.cli.models.diff:diff",
    "export-model": "aggregator.cli.models.export_model:export_model",
    "evaluate": "aggregator.cli.reports.evaluate:evaluate",
    "report": "aggregator.cli.reports.report:report",
    "refine": "aggregator.cli.planning.refine:refine",
}
