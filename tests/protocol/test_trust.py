"""The trust state machine against a plain model of it, and chains of roots in any order."""

from functools import lru_cache
from hashlib import sha256
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, NOW, ROOT_KEY, Publisher, key

from protocol import canonical
from protocol.documents import trust
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope, seal
from protocol.documents.payload import HEADER_KEYS, Header
from protocol.documents.trust import Role, Root
from protocol.errors import DocumentError

KNOWN = frozenset((*HEADER_KEYS, "content"))
ROLES = ("root", "campaign", "model")


def role(numbers, threshold=1):
    return Role(frozenset(key(number).public for number in numbers), threshold)


@lru_cache(maxsize=4096)
def make_root(version, roles, signers, issued=NOW, lifetime=3650 * DAY, name="workspace"):
    """A root; ``roles`` is a tuple of (key numbers, threshold) in the order of ROLES."""
    header = Header(name, version, issued, issued, issued + lifetime)
    root = Root(header, {each: role(*spec) for each, spec in zip(ROLES, roles, strict=True)})
    return seal(PAYLOAD_TYPES["root"], canonical.pack(root.to_payload()), [key(number) for number in signers])


@lru_cache(maxsize=4096)
def make_document(kind, name, version, content, issued, lifetime, signers):
    """A campaign or model with the fields that the state machine reads: a header and some content."""
    payload = {**Header(name, version, issued, issued, issued + lifetime).to_dict(), "content": content}
    return seal(PAYLOAD_TYPES[kind], canonical.pack(payload), [key(number) for number in signers])


class Document(NamedTuple):
    kind: str
    name: str
    version: int
    content: int
    issued: int
    lifetime: int
    signers: tuple


def expected_reason(accepted, document, now, root_expires, roles):
    """The expected reason of a refusal, from the list of accepted documents; None for an acceptable document."""
    numbers, threshold = roles[ROLES.index(document.kind)]
    if len(set(numbers) & set(document.signers)) < threshold:
        return "bad_signature"
    earlier = [each for each in accepted if (each.kind, each.name) == (document.kind, document.name)]
    newest = max((each.version for each in earlier), default=0)
    if document.version < newest:
        return "rollback"
    said = document._replace(signers=())
    if document.version == newest and all(said != each._replace(signers=()) for each in earlier):
        return "equivocation"
    if now >= root_expires or now >= document.issued + document.lifetime:
        return "expired"
    return None


documents = st.builds(
    Document,
    kind=st.sampled_from(["campaign", "model"]),
    name=st.sampled_from(["a", "b"]),
    version=st.integers(1, 3),
    content=st.integers(0, 1),
    issued=st.integers(0, 8).map(lambda days: NOW + days * DAY),
    lifetime=st.sampled_from([2 * DAY, 5 * DAY, 30 * DAY]),
    signers=st.lists(st.integers(4, 8), min_size=1, max_size=4, unique=True).map(tuple),
)
clocks = st.sampled_from([0, NOW, NOW + 3 * DAY, NOW + 9 * DAY, NOW + 21 * DAY])


@examples(150)
@given(st.lists(st.tuples(documents, clocks), max_size=14), st.integers(1, 2))
def test_the_machine_agrees_with_a_plain_model(arrivals, threshold):
    roles = (((1,), 1), ((4, 5, 6), threshold), ((6, 7), 1))
    lifetime = 20 * DAY
    state = trust.pin(make_root(1, roles, (1,), NOW, lifetime), NOW)
    accepted, floor = [], NOW
    for document, clock in arrivals:
        raw = make_document(*document)
        before = (state, dict(state.floors))
        now = max(clock, floor, document.issued)
        expected = expected_reason(accepted, document, now, NOW + lifetime, roles)
        assert reason(trust.verify, state, raw, document.kind, clock, KNOWN) == expected
        assert (state, dict(state.floors)) == before
        if expected is None:
            verdict = trust.verify(state, raw, document.kind, clock, KNOWN)
            assert verdict.now == now
            assert verdict.digest == sha256(read_envelope(raw, document.kind).payload).digest()
            state = verdict.state
            accepted.append(document)
            floor = max(floor, document.issued)
            assert state.time_floor == floor
    assert trust.restore(state.root_bytes, state.floors, state.time_floor) == state


specs = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).flatmap(
    lambda numbers: st.tuples(st.just(tuple(numbers)), st.integers(1, len(numbers)))
)
chains = st.lists(st.tuples(specs, specs, specs), min_size=2, max_size=5)


def honest_chain(roles_by_version):
    """Roots 1 … n, each signed by all root keys of its predecessor and by its own root keys."""
    chain, previous = [], ()
    for version, roles in enumerate(roles_by_version, 1):
        own = roles[0][0]
        chain.append(make_root(version, roles, tuple(sorted({*own, *previous})), NOW + version))
        previous = own
    return chain


@examples(60)
@given(chains, st.data())
def test_a_chain_in_any_order_and_any_portions_leads_to_the_same_state(roles_by_version, data):
    chain = honest_chain(roles_by_version)
    start = trust.pin(chain[0], NOW)
    campaign_keys, _ = roles_by_version[0][1]
    raw = make_document("campaign", "a", 3, 0, NOW + 1, 90 * DAY, campaign_keys)
    start = trust.verify(start, raw, "campaign", NOW, KNOWN).state
    whole = trust.install_roots(start, data.draw(st.permutations(chain)), NOW)
    assert whole.root_bytes == chain[-1]
    assert whole.time_floor == NOW + len(chain)
    stepwise = start
    rest = chain[1:]
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        stepwise = trust.install_roots(stepwise, data.draw(st.permutations(rest[:cut])), NOW)
        rest = rest[cut:]
    assert stepwise == whole


@examples(60)
@given(chains)
def test_floors_are_kept_as_long_as_enough_keys_of_the_role_are(roles_by_version):
    chain = honest_chain(roles_by_version)
    state = trust.pin(chain[0], NOW)
    raw = make_document("model", "m", 2, 0, NOW, 90 * DAY, roles_by_version[0][2][0])
    state = trust.verify(state, raw, "model", NOW, KNOWN).state
    kept = True
    models = [of_models for _, _, of_models in roles_by_version]
    for (old, _), (new, threshold), root in zip(models, models[1:], chain[1:], strict=False):
        state = trust.install_roots(state, [root], NOW)
        kept = kept and len(set(old) & set(new)) >= threshold
        assert (("model", "m") in state.floors) == kept


@examples(60)
@given(chains, st.data())
def test_a_chain_with_a_gap_leads_up_to_the_gap(roles_by_version, data):
    chain = honest_chain(roles_by_version)
    assume(len(chain) > 2)
    gap = data.draw(st.integers(1, len(chain) - 2))
    start = trust.pin(chain[0], NOW)
    given_roots = chain[1:gap] + chain[gap + 1 :]
    if gap == 1:
        assert reason(trust.install_roots, start, given_roots, NOW) == "bad_signature"
    else:
        assert trust.install_roots(start, given_roots, NOW).root_bytes == chain[gap - 1]


ONE = (((1,), 1), ((2,), 1), ((3,), 1))


def test_two_next_roots_signed_by_the_same_keys_are_an_equivocation_in_any_order():
    """The same next root with a further signature is none."""
    start = trust.pin(make_root(1, ONE, (1,)), NOW)
    left = make_root(2, (((4,), 1), *ONE[1:]), (1, 4))
    right = make_root(2, (((5,), 1), *ONE[1:]), (1, 5))
    for order in permutations([left, right]):
        assert reason(trust.install_roots, start, order, NOW) == "equivocation"
    for order in permutations([make_root(2, ONE, (1,)), make_root(2, ONE, (1, 9))]):
        assert trust.install_roots(start, order, NOW).root.header.version == 2


def test_a_pinned_root_older_than_the_stored_one_is_ignored_even_with_other_keys():
    turned = (((4,), 1), *ONE[1:])
    chain = [make_root(1, ONE, (1,)), make_root(2, turned, (1, 4)), make_root(3, turned, (4,))]
    newest = trust.install_roots(trust.pin(chain[0], NOW), chain, NOW)
    for pinned in chain:
        assert trust.reconcile_pinned(newest, pinned, NOW) == newest
    second = trust.install_roots(trust.pin(chain[0], NOW), chain[1:2], NOW)
    assert trust.reconcile_pinned(second, chain[2], NOW) == newest
    assert reason(trust.reconcile_pinned, trust.pin(chain[0], NOW), chain[2], NOW) == "bad_signature"
    for wrong in (make_root(1, ONE, (1,), name="other"), make_root(1, turned, (1,))):
        assert reason(trust.reconcile_pinned, newest, wrong, NOW) == "bad_signature"


def test_nothing_to_install_changes_nothing():
    state = trust.pin(Publisher().root(), NOW)
    assert trust.install_roots(state, [], NOW) is state
    assert trust.install_roots(state, [state.root_bytes], NOW) is state


def test_the_payload_is_not_parsed_before_its_signatures_hold(monkeypatch):
    state = trust.pin(Publisher().root(), NOW)
    stranger = Publisher().sign("campaign", b"\xc1 never parsed", key(9))
    monkeypatch.setattr(trust, "read_payload", lambda _: pytest.fail("parsed"))
    assert reason(trust.verify, state, stranger, "campaign", NOW, KNOWN) == "bad_signature"


def test_a_root_says_what_it_was_made_of():
    state = trust.pin(Publisher().root(), NOW)
    keys = zip(ROLES, (ROOT_KEY, CAMPAIGN_KEY, MODEL_KEY), strict=True)
    assert state.root.roles == {name: Role(frozenset([one.public]), 1) for name, one in keys}
    assert canonical.pack(state.root.to_payload()) == read_envelope(state.root_bytes, "root").payload


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        (NOW - 2 * DAY, "is not valid before 2027-01-15 08:00:00 UTC"),
        (NOW + 30 * DAY, "expired at 2027-01-16 08:00:00 UTC"),
    ],
)
def test_a_refusal_for_its_dates_says_the_date(clock, said):
    """The header states seconds; the error text states a date."""
    header = Header("mushrooms", 1, NOW - DAY, NOW, NOW + DAY)
    root = trust.pin(make_root(1, (((1,), 1), ((2,), 1), ((3,), 1)), (1,), issued=NOW - 3 * DAY), NOW - 3 * DAY)
    raw = seal(PAYLOAD_TYPES["campaign"], canonical.pack({**header.to_dict(), "content": 1}), [CAMPAIGN_KEY])
    with pytest.raises(DocumentError, match=f"the campaign {said}$"):
        trust.verify(root, raw, "campaign", clock, KNOWN)
