"""A collector's own shares of a period, for another program of the draft's version to check.

An export has the form of the draft's test vectors. It holds the shares of one collector, and never those of both, and
the verify key, which devices must not know. So it is as secret as the collector's folder.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from aggregator.collectors.intake import Opened, Reports, Task, arrays_of, open_shares
from aggregator.collectors.verification import at_once, prepared
from protocol.shared.circuits import Blocks


class Exported(NamedTuple):
    """What another program checks.

    Attributes:
        document: the map of the file, for JSON.
        refused: reason → number of reports that are not in it.
    """

    document: dict[str, Any]
    refused: dict[str, int]


def exported(task: Task, period: int, reports: Reports) -> Exported:
    """Return a collector's shares of the reports of a period, each with what the collector would say of it.

    Args:
        task: whose shares of which campaign.
        period: the period.
        reports: its reports.
    """
    prio3, ids, refused = task.prio3, reports.ids(), Counter(reports.refused)
    circuit = prio3.circuit
    assert isinstance(circuit, Blocks)
    listed = []
    some = at_once(task.prio3)
    for start in range(0, len(ids), some):
        opened = list(open_shares(task, period, reports.fields(ids[start : start + some])))
        refused.update(one for one in opened if isinstance(one, str))
        usable = [one for one in opened if isinstance(one, Opened)]
        if not usable:
            continue
        found = prepared(*task.terms, arrays_of(usable))
        for one, verifier, readable in zip(usable, found.verifiers, found.readable, strict=True):
            if not readable:
                refused["value_out_of_domain"] += 1
                continue
            listed.append(
                {
                    "nonce": one.field.nonce.hex(),
                    "public_share": one.field.public.hex(),
                    "input_shares": _own(task.role, one.share.hex()),
                    "verifier_shares": [_own(task.role, verifier.tobytes().hex())],
                }
            )
    steps = [
        {"operation": "verify_init", "aggregator_id": task.role, "report_index": index, "success": True}
        for index in range(len(listed))
    ]
    document = {
        "algorithm_id": prio3.algorithm,
        "shares": prio3.shares,
        "block_lengths": list(circuit.sizes),
        "chunk_length": circuit.chunk,
        "ctx": task.terms.context.hex(),
        "verify_key": task.verify_key.hex(),
        "agg_param": "",
        "campaign": task.campaign.id.hex(),
        "period": period,
        "operations": steps,
        "reports": listed,
    }
    return Exported(document, dict(+refused))


def _own(role: int, share: str) -> list[str | None]:
    """Return a list for both collectors with this one's entry alone."""
    return [share if number == role else None for number in range(2)]
