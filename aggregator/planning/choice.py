"""Which mechanism answers which question: as named, or chosen by the variance that theory gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import mechanisms
from protocol.epsilon import exp_below

if TYPE_CHECKING:
    from protocol.mechanisms import Mechanism

AUTO = "auto"


def mechanism_for(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """The mechanism of one question. Run by the analyst, before any data is seen.

    ``auto`` takes ``direct`` if K < 3e^ε + 2, else ``oue``: whichever has the smaller variance for a
    value that nobody holds, (K − 2 + e^ε)/(e^ε − 1)² against 4e^ε/(e^ε − 1)² per answer.

    Args:
        name: a mechanism, or :data:`AUTO`.
        epsilon_micro: ε of one answer, in millionths.
        size: K, the number of values.
        options: of the mechanism.

    Raises:
        InputError: ``mechanism_unknown``, ``option_unknown``, ``epsilon_invalid``, ``size_invalid``.
    Source: Wang et al., USENIX Security 2017, section 5.1, equations for f = 0.
    """
    if name == AUTO:
        name = "direct" if size - 2 < 3 * exp_below(epsilon_micro) else "oue"
    return mechanisms.from_micro(name, epsilon_micro, size, **options)
