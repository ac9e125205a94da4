"""Encrypt numbers of several parties so that only their product can be decrypted (for the vertical form).

In the vertical form parties hold different features of the same records. The group is that of the squares modulo the
prime p of RFC 3526, group 14, 2048 bits; it has the prime order q = (p − 1)/2. Party i has the number n_i ≥ 0 and the
key sk_i, and the aggregator the key sk_0. With H'(t, j) = (:func:`protocol.masked.cipher.expanded` with the tag
``hearsay/1/products`` mod p)², for period t and running number j, the ciphertext of party i is C_i:

    C_i = (n_i + 1)² · H'^{sk_i} mod p,      Σ_i sk_i + sk_0 ≡ 0 mod q,      Π_i C_i · H'^{sk_0} = Π_i (n_i + 1)² mod p

By n + 1, zero can be encrypted. The square keeps all ciphertexts in one subgroup: without it the Legendre symbol of C_i
would be that of n_i + 1. The aggregator may hold sk_0, since the product is always of all parties.

Source: docs/math.md, section 6; decision 85.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isqrt, prod
from typing import NamedTuple

from protocol.errors import DocumentError, InputError
from protocol.masked.cipher import PRODUCTS, below, expanded, power, wide

PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
"""The prime p = 2^2048 − 2^1984 − 1 + 2^64·(⌊2^1918·π⌋ + 124476), a safe prime."""

ORDER = (PRIME - 1) // 2
"""The prime q, the order of the group of squares."""


class ProductKeys(NamedTuple):
    """Keys of one vertical campaign: one key for each party, and sk_0 for the aggregator."""

    secrets: tuple[int, ...]
    aggregator: int


def product_keys(parties: int, entropy: Callable[[int], bytes]) -> ProductKeys:
    """Draw the parties' keys, uniform modulo q, and the aggregator's, so that all sum to 0 modulo q.

    Args:
        parties: number of parties, at least 2: the aggregator would decrypt a single party's number itself.
        entropy: returns as many secret random bytes as it is asked for, like ``os.urandom``.

    Raises:
        InputError: ``parties_too_few``: fewer than two parties.
        InputError: ``argument_invalid``: the source returned another number of bytes.
    """
    if parties < 2:
        raise InputError("parties_too_few", "a product of one party's numbers hides nothing: at least two are needed")
    secrets = tuple(below(ORDER, entropy) for _ in range(parties))
    return ProductKeys(secrets, -sum(secrets) % ORDER)


def base_of_squares(campaign_id: bytes, period: int, number: int) -> int:
    """Return H', the base of one ciphertext of products, a square modulo p.

    Args:
        campaign_id: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1; a new one whenever the parties encrypt again.
        number: the running number of the product, from 0.
    """
    return power(expanded(PRODUCTS, campaign_id, period, number) % PRIME, 2, PRIME)


def require_room(bounds: Iterable[int]) -> None:
    """Raise an error if the product Π (n + 1)² may reach p: modulo p it would be another number.

    Args:
        bounds: for each party the largest number n that it may encrypt, by public knowledge.

    Raises:
        InputError: ``product_overflow``: Π (bound + 1)² ≥ p.
    """
    if prod(bound + 1 for bound in bounds) ** 2 >= PRIME:
        raise InputError("product_overflow", "the product of the parties' largest numbers does not fit: fewer parties")


def mask_number(value: int, bound: int, secret: int, campaign_id: bytes, period: int, number: int) -> int:
    """Encrypt one party's number: return (value + 1)² · H'^secret mod p.

    Never encrypt twice with the same key, campaign, period and running number: two ciphertexts tell the numbers' ratio.

    Args:
        value: the party's number n, from 0 to ``bound``.
        bound: the party's largest number, by public knowledge: see :func:`require_room`.
        secret: the party's key.
        campaign_id: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1.
        number: the running number of the product, from 0.

    Raises:
        InputError: ``slot_overflow``: the value is not from 0 to the bound.
    """
    if not 0 <= value <= bound:
        raise InputError("slot_overflow", "a number of a product is outside 0 to its public bound")
    return (value + 1) ** 2 * power(base_of_squares(campaign_id, period, number), secret, PRIME) % PRIME


def opened_product(
    ciphertexts: Sequence[int], bounds: Sequence[int], aggregator: int, campaign_id: bytes, period: int, number: int
) -> int:
    """Decrypt and return Π (n_i + 1), where n_i is the number of party i.

    Args:
        ciphertexts: one ciphertext of each party.
        bounds: the largest number of each party, in the same order.
        aggregator: sk_0, the aggregator's key.
        campaign_id: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1.
        number: the running number of the product, from 0.

    Raises:
        InputError: ``product_overflow``: the bounds allow a product that does not fit.
        DocumentError: ``mask_mismatch``: ciphertexts, key, period or number do not belong together. The decrypted
            integer is no square, is 0, or its root is above Π (bound + 1); or there are not as many ciphertexts as
            bounds.
    """
    require_room(bounds)
    if len(ciphertexts) != len(bounds):
        raise DocumentError("mask_mismatch", f"{len(bounds)} ciphertexts are expected, not {len(ciphertexts)}")
    product = wide(power(base_of_squares(campaign_id, period, number), aggregator, PRIME))
    for ciphertext in ciphertexts:
        product = product * ciphertext % PRIME
    square = int(product)
    root = isqrt(square)
    if not square or root * root != square or root > prod(bound + 1 for bound in bounds):
        raise DocumentError(
            "mask_mismatch", "the decrypted product is no square within the bounds: other parties or period"
        )
    return root
