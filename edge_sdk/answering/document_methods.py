"""The methods of :class:`edge_sdk.Device` for signed documents: explain, enrol, install, rotate, find."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.log import logged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_sdk.answering.acceptance import Acceptance
    from edge_sdk.classifier import Classifier
    from edge_sdk.storage.documents import Documents
    from edge_sdk.timekeeping import Timekeeper
    from protocol.documents.campaign import Campaign
    from protocol.errors import DocumentError


class Followed(NamedTuple):
    """A document that a state follows: it accepts newer versions of it.

    Attributes:
        role: ``nodes``, a list of nodes, or ``keys``, a key book.
        name: of the list, or of the campaign of the book; the source has it under this name.
        version: that was accepted last; None if none was.
        accept: verifies and stores a file, and returns its version.
        most_bytes: largest size of a file that can be accepted. A source can not make the device hold more.
    """

    role: str
    name: str
    version: int | None
    accept: Callable[[bytes], int]
    most_bytes: int


class DocumentMethods:
    """The part of a :class:`edge_sdk.Device` that accepts signed documents, and finds the accepted ones."""

    _acceptance: Acceptance
    _documents: Documents
    _time: Timekeeper

    def explain(self, raw: bytes, *, model: bytes | Iterable[bytes] | None = None) -> str:
        """Say in words what a signed campaign asks and costs, or how a model was made. The state is not changed.

        Of a model it is what the publisher's card says: source, cost, expected accuracy, and who could have moved it.

        Args:
            raw: the ``.hsc`` file of a campaign, or the ``.hsm`` file of a model, before it is accepted.
            model: the ``.hsm`` file of the model that the campaign evaluates, if that model is not installed; or the
                files of several models.

        Raises:
            DocumentError: the campaign or the model is not acceptable. What the policy refuses is explained instead.
            InputError: ``model_unknown``: an evaluated model is neither given nor installed, or another is given;
                ``policy_invalid``, ``policy_missing``: the policy can not be read, or is gone; ``argument_invalid``.
        """
        models = [model] if isinstance(model, bytes) else [] if model is None else list(model)
        return self._acceptance.explain(raw, models)

    @logged("enrol", lambda campaign: f"{campaign.header.name} version {campaign.header.version}")
    def enrol(self, raw: bytes, *, name: str | None = None) -> Campaign:
        """Verify a campaign, check it against the policy and store it. A newer version replaces the older one.

        Args:
            raw: the ``.hsc`` file.
            name: the expected name; a campaign of another name is refused. None accepts every name.

        Raises:
            DocumentError: ``other_name``: not the expected name; ``bad_signature``: not signed by trusted keys;
                ``rollback``: older than the accepted version; ``equivocation``: another document of the accepted
                version; ``not_yet_valid``, ``expired``, ``invalid_campaign``, ``epsilon_understated`` and the reasons
                of a file that can not be read. After ``equivocation`` the campaign is kept as evidence
                (:meth:`evidence`).
            PolicyError: ``policy_refused``; ``disabled``: the owner has opted out.
            InputError: ``model_unknown``: a model that it evaluates is not installed; ``campaign_for_nodes``,
                ``campaign_for_devices``: the first campaign of this state was of the other kind; ``policy_invalid``,
                ``policy_missing``, ``argument_invalid``.
        """
        return self._acceptance.enrol(raw, name)

    @logged("install", lambda model: f"{model.name} version {model.version}")
    def install(self, raw: bytes, *, name: str | None = None) -> Classifier:
        """Verify a model, store it, and return it ready to classify.

        Args:
            raw: the ``.hsm`` file.
            name: the expected name; a model of another name is refused. None accepts every name.

        Raises:
            DocumentError: ``other_name``: not the expected name; ``bad_signature``: not signed by trusted keys;
                ``rollback``: older than the accepted version; ``equivocation``: another document of the accepted
                version; ``not_yet_valid``, ``expired``, ``invalid_model`` and the reasons of a file that can not be
                read. After ``equivocation`` the model is kept as evidence (:meth:`evidence`).
            InputError: ``argument_invalid``.
        """
        from edge_sdk.classifier import Classifier

        return Classifier(self._acceptance.install(raw, name), self._time.now)

    @logged("rotate", lambda version: f"root {version} is trusted")
    def rotate(self, roots: Iterable[bytes]) -> int:
        """Follow newer trust roots from the stored one, as far as they form a chain. They may come in any order.

        Campaigns that the new root's keys have not signed end, since their keys were revoked. Models still classify.

        Args:
            roots: the bytes of the root files (``.hst``).

        Returns:
            The version of the root that is now trusted.

        Raises:
            DocumentError: ``bad_signature``: no root can be reached; ``not_yet_valid``, ``expired``: the newest root
                reached is out of date; ``equivocation``, after which the roots are kept as evidence; ``rollback``; and
                the reasons of a file that can not be read. The trusted root stays as it was.
            InputError: ``argument_invalid``.
        """
        return self._acceptance.rotate(roots)

    @logged("follow", lambda found: f"root {found[0]} is trusted")
    def follow(self, roots: Iterable[bytes]) -> tuple[int, DocumentError | None]:
        """Follow trust roots that are given in the order of their versions, up to the newest that is in date.

        Unlike :meth:`rotate`, this keeps what was reached before a root that is refused, and returns the refusal.
        Campaigns that the new root's keys have not signed end.

        Args:
            roots: the bytes of the root files.

        Returns:
            The version of the root that is now trusted; why later roots were not followed, None if all were.

        Raises:
            InputError: ``argument_invalid``: a root is not given as bytes; no root is followed.
        """
        return self._acceptance.follow(roots)

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Pairs of different signed documents of one name and version, eight pairs at most.

        Returns:
            For each pair: the role (``root``, ``campaign`` or ``model``), the file that came first, which is the
            accepted one unless both are roots that came together, and the file that was refused.
        """
        return self._documents.evidence()

    def campaigns(self) -> list[Campaign]:
        """The accepted campaigns, sorted by name, with those that their publisher ended, or that have expired.

        Campaigns that a new root ended are deleted; :meth:`status` has their names.
        """
        return self._acceptance.campaigns()

    def campaign(self, called: bytes | str) -> Campaign:
        """Find an accepted campaign.

        Args:
            called: its id as bytes; or as text its name, or else the first hexadecimal digits of its id.

        Raises:
            InputError: ``campaign_unknown``: no accepted campaign, or more than one, is called so.
        """
        return self._acceptance.campaign(called)

    def model(self, name: str | None = None) -> Classifier:
        """The installed model called ``name``; for None, the only installed model.

        Raises:
            InputError: ``model_unknown``: there is no such model; ``model_ambiguous``: ``name`` is None, and several
                models are installed.
        """
        from edge_sdk.classifier import Classifier

        return Classifier(self._acceptance.model(name), self._time.now)

    def followed(self) -> list[Followed]:
        """The documents beside campaigns and models that ``sync`` fetches for this state: none of a device."""
        return []
