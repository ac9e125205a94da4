"""The software of the operator: intake of reports, estimates, models, publishing and the ``hearsay`` command.

A report file passes through ``reports`` (decoded, stored as Parquet, counted) → ``estimates`` (unbiased, with
variances) → ``models`` → ``publishing``. Each public name imports its libraries when it is first used;
docs/reference/api/aggregator.md lists the functions of each command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator.collectors.campaigns import make_shared_campaign
    from aggregator.collectors.collector import CollectorFolder
    from aggregator.common.tables import read_table
    from aggregator.curator.budget import BudgetFile
    from aggregator.curator.counting import count_records
    from aggregator.curator.fitting import fit_records
    from aggregator.estimates.joining import join
    from aggregator.models.comparison import compare
    from aggregator.models.interchange import to_json, to_sklearn
    from aggregator.models.scoring import Model, predict_file
    from aggregator.nodes.campaigns.campaigns import Masking, make_node_campaign
    from aggregator.nodes.campaigns.lists import add_nodes, make_node_list, remove_nodes, renew_nodes
    from aggregator.nodes.dealer.dealer import Dealer
    from aggregator.operations.campaigns import end_campaign, guarantee_sheet, make_campaign, make_evaluation, verify
    from aggregator.operations.designs import design, refine, sign_candidates
    from aggregator.operations.export import export
    from aggregator.operations.models import count, evaluate, ingest, make_model
    from aggregator.operations.report_store import open_store
    from aggregator.operations.retry import retry as retry_quarantine
    from aggregator.operations.status import status
    from aggregator.page.report import report
    from aggregator.planning.power_analysis.plan import plan
    from aggregator.publishing.roots import RootChange, change_root, gather_copies, resign
    from aggregator.publishing.schemas.schema_draft import draft_schema
    from aggregator.publishing.schemas.schema_file import load_schema
    from aggregator.publishing.tree import write_tree as publish_tree
    from aggregator.publishing.workspace import create_workspace, open_workspace
    from aggregator.reports.fleet import Roster
    from aggregator.reports.fleet import new_roster as new_fleet
    from aggregator.reports.fleet import read_roster as read_fleet
    from aggregator.reports.fleet import write_roster as write_fleet
    from aggregator.reports.gateway import merge_files

__all__ = [
    "BudgetFile",
    "CollectorFolder",
    "Dealer",
    "Masking",
    "Model",
    "RootChange",
    "Roster",
    "add_nodes",
    "bin_records",
    "change_root",
    "compare",
    "count",
    "count_records",
    "create_workspace",
    "design",
    "design_records",
    "draft_schema",
    "end_campaign",
    "evaluate",
    "export",
    "fit_records",
    "gather_copies",
    "guarantee_sheet",
    "ingest",
    "join",
    "load_schema",
    "make_campaign",
    "make_evaluation",
    "make_model",
    "make_node_campaign",
    "make_node_list",
    "make_shared_campaign",
    "merge_files",
    "new_fleet",
    "open_store",
    "open_workspace",
    "plan",
    "predict_file",
    "project_records",
    "publish_tree",
    "read_fleet",
    "read_table",
    "refine",
    "remove_nodes",
    "renew_nodes",
    "report",
    "resign",
    "retry_quarantine",
    "sign_candidates",
    "status",
    "to_json",
    "to_sklearn",
    "verify",
    "write_fleet",
]

_HOMES = {
    "aggregator.collectors.campaigns": ("make_shared_campaign",),
    "aggregator.collectors.collector": ("CollectorFolder",),
    "aggregator.common.tables": ("read_table",),
    "aggregator.curator.binning": ("bin_records",),
    "aggregator.curator.budget": ("BudgetFile",),
    "aggregator.curator.counting": ("count_records",),
    "aggregator.curator.fitting": ("fit_records",),
    "aggregator.curator.projecting": ("project_records",),
    "aggregator.estimates.joining": ("join",),
    "aggregator.models.comparison": ("compare",),
    "aggregator.models.interchange": ("to_json", "to_sklearn"),
    "aggregator.models.scoring": ("Model", "predict_file"),
    "aggregator.nodes.campaigns.campaigns": ("Masking", "make_node_campaign"),
    "aggregator.nodes.campaigns.lists": ("add_nodes", "make_node_list", "remove_nodes", "renew_nodes"),
    "aggregator.nodes.dealer.dealer": ("Dealer",),
    "aggregator.operations.campaigns": (
        "end_campaign",
        "guarantee_sheet",
        "make_campaign",
        "make_evaluation",
        "verify",
    ),
    "aggregator.operations.designs": ("design", "refine", "sign_candidates"),
    "aggregator.operations.export": ("export",),
    "aggregator.operations.models": ("count", "evaluate", "ingest", "make_model"),
    "aggregator.operations.report_store": ("open_store",),
    "aggregator.operations.retry": ("retry_quarantine",),
    "aggregator.operations.status": ("status",),
    "aggregator.page.report": ("report",),
    "aggregator.planning.feature_selection.from_private_pilot": ("design_records",),
    "aggregator.planning.power_analysis.plan": ("plan",),
    "aggregator.publishing.roots": ("RootChange", "change_root", "gather_copies", "resign"),
    "aggregator.publishing.schemas.schema_draft": ("draft_schema",),
    "aggregator.publishing.schemas.schema_file": ("load_schema",),
    "aggregator.publishing.tree": ("publish_tree",),
    "aggregator.publishing.workspace": ("create_workspace", "open_workspace"),
    "aggregator.reports.fleet": ("Roster", "new_fleet", "read_fleet", "write_fleet"),
    "aggregator.reports.gateway": ("merge_files",),
}
"""Module → the public names that it holds."""
_CALLED = {
    "new_fleet": "new_roster",
    "publish_tree": "write_tree",
    "read_fleet": "read_roster",
    "retry_quarantine": "retry",
    "write_fleet": "write_roster",
}
"""Public name → its name in its module, if that is another one."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), _CALLED.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names only, for the completion of an interactive prompt."""
    return sorted(__all__)
