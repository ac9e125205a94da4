"""What the owner of a device allows. No campaign, however signed, can change it.

The policy is a local file, ``policy.toml`` in the state folder:

    epsilon_per_period = "2.0"     # largest ε that a campaign may spend in one of its periods
    epsilon_lifetime = "50"        # largest ε that this device ever spends, over all campaigns
    allow_refuse = true            # development only: accept campaigns with ``unlisted = "refuse"``

Without the file the defaults of :class:`Policy` hold.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from protocol.epsilon import MICRO, format_micro, micro_epsilon
from protocol.errors import InputError, PolicyError
from protocol.schema import refusing

if TYPE_CHECKING:
    from protocol.campaign import Campaign

POLICY_FILE = "policy.toml"


class Policy(NamedTuple):
    """The owner's limits; ε in millionths.

    Attributes:
        period_micro: largest ε that a campaign may spend per period.
        lifetime_micro: largest ε in all, over all campaigns and for the life of the device; it does
            not depend on the clock.
        allow_refuse: whether a campaign may refuse unlisted values. Then it depends on the record whether
            there is a report, and ε says nothing about that.
    """

    period_micro: int = 4 * MICRO
    lifetime_micro: int = 100 * MICRO
    allow_refuse: bool = False

    @classmethod
    def of(
        cls,
        *,
        epsilon_per_period: str | float = 4,
        epsilon_lifetime: str | float = 100,
        allow_refuse: bool = False,
    ) -> Policy:
        """The policy with these limits.

        Raises:
            InputError: ``epsilon_invalid``; ``policy_invalid`` unless ``allow_refuse`` is true or false.
        """
        if not isinstance(allow_refuse, bool):
            raise InputError("policy_invalid", "allow_refuse is true or false")
        return cls(micro_epsilon(epsilon_per_period), micro_epsilon(epsilon_lifetime), allow_refuse)

    def check_campaign(self, campaign: Campaign) -> None:
        """Refuse a campaign that asks for more than the owner allows.

        That is a larger ε per period, or reports that show by being there that a record was not refused.

        Raises:
            PolicyError: ``policy_refused``.
        """
        if campaign.epsilon_micro > self.period_micro:
            raise PolicyError(
                "policy_refused",
                f"the campaign spends ε = {format_micro(campaign.epsilon_micro)} per period; "
                f"the owner allows {format_micro(self.period_micro)}",
            )
        if not self.allow_refuse and refusing(campaign.schema):
            raise PolicyError(
                "policy_refused",
                "the campaign refuses unlisted values, so whether there is a report would depend on the record; "
                "the owner allows that with allow_refuse = true, for development",
            )

    def check_budget(self, spent_micro: int, micro: int) -> None:
        """Refuse to spend ``micro`` more once ``spent_micro`` is gone.

        Raises:
            PolicyError: ``budget_exhausted``.
        """
        if spent_micro + micro > self.lifetime_micro:
            raise PolicyError(
                "budget_exhausted",
                f"of the lifetime's ε = {format_micro(self.lifetime_micro)}, {format_micro(spent_micro)} is spent; "
                f"this answer would need {format_micro(micro)}",
            )


def load_policy(path: str) -> Policy:
    """The owner's policy file; the defaults where there is nothing of that name, not even a link.

    Raises:
        InputError: ``policy_invalid``: unreadable, not TOML, an unknown key or a wrong value. A device
            with a policy that it can not read does not fall back to another one.
    """
    import tomllib

    if not os.path.lexists(path):
        return Policy()
    try:
        with open(path, "rb") as file:
            entries = tomllib.load(file)
        unknown = set(entries) - {"epsilon_per_period", "epsilon_lifetime", "allow_refuse"}
        if not unknown:
            return Policy.of(**entries)
        problem = f" has an unknown key '{min(unknown)}'"
    except InputError as error:
        problem = f": {error.detail}"
    except (OSError, ValueError) as error:
        problem = f" can not be read: {type(error).__name__}"
    raise InputError("policy_invalid", POLICY_FILE + problem)
