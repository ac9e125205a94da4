"""A campaign that was signed: its file, its signatures, and what the signer should know."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from aggregator.common.notebooks import facts
from aggregator.publishing.mechanisms.by_variance import Candidate
from aggregator.publishing.naming import save_document
from aggregator.publishing.signatures import Standing
from protocol.documents.campaign import Campaign
from protocol.epsilon import format_micro


class SignedCampaign(NamedTuple):
    """A campaign that was signed.

    Attributes:
        raw: the bytes of the ``.hsc`` file.
        campaign: the parsed campaign.
        standing: its valid signatures and the needed number. Devices refuse a campaign with fewer.
        why: the candidates that ``auto`` compared, the chosen one first; empty without ``auto``.
        warnings: sentences for the signer.
    """

    raw: bytes
    campaign: Campaign
    standing: Standing
    why: tuple[Candidate, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        header = self.campaign.header
        return f"SignedCampaign({header.name!r}, version {header.version}, {len(self.raw)} bytes)"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the signed campaign to a file. ``force`` replaces an existing file.

        Raises:
            InputError: ``output_exists``: there is a file, and not ``force``; ``output_invalid``: no file can have this
                path, for example because its folder does not exist.
            StorageError: ``disk_full``, ``io_failed``: the file can not be written. The text says where the workspace
                keeps its copy.
        """
        save_document(Path(path), self.raw, "campaign", force=force)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"name": self.campaign.header.name, "version": self.campaign.header.version}
        about |= {"id": self.campaign.id.hex()}
        nodes = self.campaign.nodes
        about |= {"questions": len(self.campaign.questions)} if nodes is None else {"node list": nodes.list_name}
        about |= {"ε per period": format_micro(self.campaign.epsilon_micro), "signatures": str(self.standing)}
        return facts("Campaign", {**about, **{f"warning {n}": each for n, each in enumerate(self.warnings, 1)}})
