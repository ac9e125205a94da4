"""A kind for whole devices: what a device does after some documents and reports, under its owner's policy."""

from __future__ import annotations

from typing import Any

from edge_sdk import Device, Policy
from protocol.errors import HearsayError
from vectors.runner import UnfitVectorError, kind


@kind
def device(root: str, policy: dict[str, Any], before: list[list[Any]], step: list[Any]) -> dict[str, Any]:
    """One step of a device, after other steps; each is [what, argument, wall clock].

    ``policy`` is as policy.toml. ``enrol`` and ``install`` take a document's bytes: what comes out is its name and
    version. ``report`` takes the name of an enrolled campaign and answers about an empty record: what comes out is the
    period, and whether its bytes are those of an earlier answer. The expected reason is that of the last step.
    """
    clock = [before[0][2] if before else step[2]]
    with Device.open(
        None, trust=bytes.fromhex(root), policy=Policy.of(**policy), clock=lambda: clock[0], entropy=_seeds
    ) as opened:
        try:
            for what, argument, clock[0] in before:
                _step(opened, what, argument)
        except HearsayError as error:
            raise UnfitVectorError(f"a step before the tested one is refused: {error}") from error
        what, argument, clock[0] = step
        return _step(opened, what, argument)


def _seeds(count: int) -> bytes:
    """No vector depends on the noise."""
    return bytes(count)


def _step(opened: Device, what: str, argument: str) -> dict[str, Any]:
    if what == "enrol":
        header = opened.enrol(bytes.fromhex(argument)).header
        return {"name": header.name, "version": header.version}
    if what == "install":
        model = opened.install(bytes.fromhex(argument))
        return {"name": model.name, "version": model.version}
    if what != "report":
        raise UnfitVectorError(f"a device has no step {what!r}")
    said = opened.answer(argument, {})
    return {"period": said.period, "repeated": said.repeated}
