"""A fleet of devices in memory. Each device enrols and answers once; batch files collect the reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from edge_sdk import Device, Policy
from edge_sdk.entropy import system_entropy
from protocol.batches.batch import Header, write_batch
from protocol.documents.campaign import Campaign

PERMISSIVE = Policy.of(epsilon_per_period="100000", epsilon_lifetime="100000")
"""The policy of simulated owners: limits on ε of 100000, else the default rules."""


def device_reports(
    root: bytes,
    campaign: bytes,
    people: Iterable[tuple[Mapping[str, object], object]],
    *,
    now: int,
    entropy: Callable[[int], bytes] = system_entropy,
    models: Sequence[bytes] = (),
) -> Iterator[bytes]:
    """Yield the reports of one new device per person.

    Args:
        root: the trust root that the devices pin.
        campaign: the signed campaign.
        people: record and label of each person.
        now: the time on the devices' clocks, in seconds since 1970.
        entropy: the devices' randomness; by default from the operating system.
        models: signed models that every device installs first, for campaigns that evaluate them.

    Yields:
        all answers of one device, one after another.

    Raises:
        DocumentError, PolicyError, InputError: a device refuses root, campaign, model or record.
    """
    for record, label in people:
        with Device.open(None, trust=root, policy=PERMISSIVE, clock=lambda: now, entropy=entropy) as device:
            for model in models:
                device.install(model)
            yield device.report(device.enrol(campaign).id, record, label=label)


def write_batches(folder: Path, campaign: Campaign, reports: Iterable[bytes], per_file: int = 1000) -> list[Path]:
    """Write the reports of devices into batch files, as a gateway does.

    Args:
        folder: gets the files ``0000.hsr``, ``0001.hsr``, …. It exists already.
        campaign: of the reports.
        reports: for each device the bytes of all its answers, one after another.
        per_file: number of devices per file.

    Returns:
        the paths of the files, in order; files of the same name are replaced.

    Raises:
        InputError: ``batch_invalid``: a report has a wrong length.
    """
    length = campaign.layout.record_length
    header = Header(campaign.id, campaign.layout.kind, length)
    waiting = iter(reports)
    files: list[Path] = []
    while chunk := list(islice(waiting, per_file)):
        path = folder / f"{len(files):04d}.hsr"
        records = [answers[start : start + length] for answers in chunk for start in range(0, len(answers), length)]
        path.write_bytes(write_batch(header, records))
        files.append(path)
    return files
