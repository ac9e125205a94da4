"""The methods of :class:`edge_sdk.Device` for reports: report, check, drain, acknowledge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.answering.answer import AboutRecord
from edge_sdk.answering.document_methods import DocumentMethods
from edge_sdk.log import logged
from protocol.documents.evaluation import named_once, schema_read
from protocol.schema import FROM_RECORD

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from edge_sdk.answering.answer import Meanings, Models
    from edge_sdk.answering.reporting import Reporting, Said
    from edge_sdk.answering.sealing import Sealing
    from protocol.schema import Check


class ReportMethods(DocumentMethods):
    """The part of a :class:`edge_sdk.Device` that answers about records, and hands the reports over."""

    _entropy: Callable[[int], bytes]
    _meanings: Meanings
    _models: Models
    _reporting: Reporting
    _sealing: Sealing

    def report(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> bytes:
        """Answer about one record, at most once per period.

        The reports and the ε that they cost are stored in one durable transaction. A second call in the same period, or
        in an earlier one after the clock was set back, returns the same bytes, whatever the record: an answer about a
        changed record would cost a second ε.

        Args:
            campaign_id: ``Campaign.id``; or as text the campaign's name, or the first hexadecimal digits of its id.
            record: feature name → value. None or an absent key is a missing value. Other keys are ignored. To see
                beforehand which values have no meaning, use ``Campaign.check``.
            label: the record's class; None if it is not known. The default is the record's value under the label's
                name.

        Returns:
            The period's r reports, joined, each of the campaign's record length.

        Raises:
            InputError: ``campaign_unknown``: no such campaign was accepted, or it is no longer; ``campaign_for_nodes``:
                call :meth:`edge_sdk.Node.summarise`; ``model_unknown``: the model that the campaign evaluates is not
                installed; ``record_invalid``: the record is no mapping;
                ``value_refused``: a value is unlisted, and the campaign refuses such values (no other refusal depends
                on a value); ``policy_invalid``, ``policy_missing``, ``argument_invalid``.
            DocumentError: ``expired``, ``not_yet_valid``, ``campaign_ended``; ``invalid_campaign``: the evaluated model
                has other classes.
            PolicyError: ``period_answered``: the period was paid for before, and there is no answer to return;
                ``policy_refused``: the owner's policy does not allow the campaign; ``budget_exhausted``: the limit on ε
                for the device's life is reached; ``budget_paused``: the limit of a day or of the window is reached;
                ``series_answered``, ``series_begun``, ``series_not_member``: the campaign is of a series, of which this
                device answers no further period, whatever its record;
                ``disabled``: the owner has opted out.
            StorageError: ``entropy_unavailable``, or the state can not be read or written. After a failed write the
                answer is stored and paid, or neither; call again. After all other errors no ε was spent.
        """
        return self.answer(campaign_id, record, label).reports

    def check(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Tell which features of a record would count as missing or unlisted. Nothing is answered, spent or kept.

        This is ``Campaign.check``, except that a campaign that evaluates a model reads the model's features.

        Args:
            campaign_id: the campaign's id; or as text its name, or the first hexadecimal digits of its id.
            record: feature name → value.
            label: the record's class; None if it is not known. The default is the record's value under the label's
                name.

        Returns:
            The names of the missing and of the unlisted features, the number of ignored keys, and hints in words.

        Raises:
            InputError: ``campaign_unknown``, ``model_unknown``, ``record_invalid``, ``argument_invalid``.
            DocumentError: ``invalid_campaign``: the evaluated model has other classes.
        """
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        campaign = self._reporting.campaign(campaign_id)
        return named_once(schema_read(campaign, self._models.evaluated(campaign)).check(record, label))

    @logged("report")
    def answer(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Said:
        """Answer about one record like :meth:`report`, and also tell the period and whether it was answered before.

        The arguments ``campaign_id``, ``record`` and ``label``, and the errors, are those of :meth:`report`.
        """
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        about = AboutRecord(record, label, models=self._models, meanings=self._meanings, entropy=self._entropy)
        return self._reporting.answer(campaign_id, about)

    @logged("drain", lambda count: f"{count} reports sealed")
    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all unacknowledged reports into a new batch file, atomically. The reports stay in the spool.

        The file holds one batch per campaign, and only the device's user can read it. A node's file holds summaries or
        messages of masked campaigns: of a node with both, the oldest of one kind up to the first of the other
        (:meth:`file_ending`), and the next call after :meth:`ack` seals the following ones. Call :meth:`ack` once the
        file has arrived. Until then, each call seals the same reports again; the aggregator counts repeated reports
        once.

        Args:
            path: where the new file is to be.

        Returns:
            The number of reports in the file; if it is 0, no file is written.

        Raises:
            InputError: ``argument_invalid``.
            StorageError: ``file_exists``: that file is unchanged; ``io_failed``, ``disk_full``, ``state_busy``,
                ``state_damaged``: there is no new file, or it is complete: send it or remove it. The reports stay.
        """
        return self._sealing.drain(path)

    def file_ending(self) -> str | None:
        """How the name of the file that :meth:`drain` would seal now should end; None if no report waits.

        Returns:
            ``.hsr`` for reports; of a node ``.hsn`` for summaries, ``.hse`` for the messages of masked campaigns.
        """
        return self._sealing.ending()

    @logged("ack", lambda count: f"{count} reports released")
    def ack(self, path: str | os.PathLike[str]) -> int:
        """Forget the reports of a file that :meth:`drain` sealed, because the file has arrived.

        Args:
            path: where the file was sealed, even if it is no longer there; or where the file is now.

        Returns:
            The number of reports released; 0 if they were acknowledged or dropped before.

        Raises:
            InputError: ``batch_unknown``: this device has not sealed that file, or too long ago; ``argument_invalid``.
            StorageError: the state can not be read or written; call again.
        """
        return self._sealing.ack(path)
