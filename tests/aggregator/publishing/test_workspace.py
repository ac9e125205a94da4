"""A workspace and its key files: all or nothing, for their owner alone, versions used up before they leave."""

import json
import stat
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import everything_said, reason, reason_of, refusal
from support.publisher import NOW, Publisher, key, small_schema
from support.reports import opened

from aggregator.common.sealing import STANDARD, Cost
from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.publishing import keys
from aggregator.publishing import workspace as rooms
from aggregator.publishing.campaigns import CampaignParameters, build_campaign, parse_duration, publish_campaign
from aggregator.publishing.keys import key_file, parse_key, parse_public, public_line, read_key, write_key
from aggregator.publishing.signatures import signed_campaign
from aggregator.publishing.workspace import create_workspace, open_workspace
from aggregator.reports.tally.tally import Tally
from protocol import canonical
from protocol.documents import campaign, trust
from protocol.documents.payload import DAY_SECONDS
from protocol.epsilon import MICRO
from protocol.errors import DocumentError, InputError, StorageError

TERMS = CampaignParameters("mushrooms", MICRO, "direct")


def make(path, **options):
    return create_workspace(path, **{"name": "workspace", "now": NOW, **options})


def publish(workspace, now=NOW, **changes):
    return publish_campaign(workspace, small_schema(), TERMS._replace(**changes), now)


def header_of(raw):
    return opened(raw).header


def test_keys_are_for_their_owner_alone_and_the_same_entropy_makes_the_same_root(tmp_path):
    made = make(tmp_path / "work")
    assert stat.S_IMODE((made.path / "keys").stat().st_mode) == 0o700
    for role in ("root", "campaign", "model"):
        assert stat.S_IMODE((made.path / "keys" / f"{role}.key").stat().st_mode) == 0o600
    assert len({next(iter(role.keys)) for role in made.root.roles.values()}) == 3
    assert trust.pin((made.path / "root.hst").read_bytes(), NOW).root == made.root
    (tmp_path / "a").mkdir()  # an empty folder may become one
    a, b = (make(tmp_path / name, entropy=bytes) for name in "ab")
    assert a.root_bytes == b.root_bytes
    assert a.history() == []


@pytest.mark.parametrize("kind", ["workspace", "folder", "file", "link"])
def test_what_exists_is_never_touched(tmp_path, kind):
    path = tmp_path / "work"
    if kind == "workspace":
        make(path)
    elif kind == "folder":
        path.mkdir()
        (path / "notes").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    before = sorted((str(p), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*"))
    assert refusal(make, path) == "workspace_exists"
    assert sorted((str(p), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*")) == before


def test_a_failure_while_making_one_leaves_nothing(tmp_path, monkeypatch):
    for name in ("", "two\nlines", "x" * 2000):
        assert refusal(make, tmp_path / "work", name=name) == "name_invalid"

    def fail(*_, **__):
        raise StorageError("io_failed", "the disk is full")

    monkeypatch.setattr(rooms, "history_bytes", fail)
    assert refusal(make, tmp_path / "work") == "io_failed"
    assert list(tmp_path.iterdir()) == []
    assert refusal(make, tmp_path / "absent" / "work") == "io_failed"


def test_versions_rise_per_name_and_survive_reopening(tmp_path):
    first = make(tmp_path / "work")
    assert header_of(publish(first)).version == 1
    again = open_workspace(tmp_path / "work")
    assert header_of(publish(again)).version == 2
    assert header_of(publish(again, name="pilzé")).version == 1
    assert again.latest("campaign", "mushrooms").version == 2
    assert again.latest("model", "mushrooms") is None
    (entry, *rest) = json.loads((tmp_path / "work" / "history.json").read_text())["documents"]
    assert (entry["role"], entry["name"], entry["version"], entry["issued_at"]) == ("campaign", "mushrooms", 1, NOW)
    assert {f"{one['digest']}.hsc" for one in (entry, *rest)} == {
        each.name for each in (again.path / "published").iterdir()
    }
    make(tmp_path / "shared")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: publish(open_workspace(tmp_path / "shared")), range(6)))
    versions = [item.version for item in open_workspace(tmp_path / "shared").history()]
    assert versions == [1, 2, 3, 4, 5, 6]


def test_a_document_that_devices_would_refuse_uses_up_no_version(tmp_path):
    made = make(tmp_path / "work", lifetime_seconds=10 * DAY_SECONDS)
    assert refusal(publish, made, now=NOW + 10 * DAY_SECONDS) == "expired"
    assert refusal(publish, made, mechanism="nonsense") == "mechanism_unknown"
    assert made.history() == []
    assert header_of(publish(made)).version == 1


def key_bytes(form, role="campaign", **fields):
    return canonical.pack({"hearsay_key": form, "role": role, **fields})


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("root.hst", b"", "workspace_damaged"),
        ("history.json", b"{", "workspace_damaged"),
        ("history.json", b"[]", "workspace_damaged"),
        ("history.json", None, "workspace_damaged"),  # no new beginning: version 1 would be used twice
        ("history.json", b'{"format": 1, "documents": [{"role": "campaign"}]}', "workspace_damaged"),
        ("history.json", b'{"format": 2, "documents": []}', "workspace_newer"),
        ("lock", None, "io_failed"),
        ("keys/campaign.key", b"", "workspace_damaged"),
        ("keys/campaign.key", key_bytes(3), "workspace_newer"),
        ("keys/campaign.key", key_bytes(2), "workspace_damaged"),
        ("keys/campaign.key", key_bytes(1, seed=b"short"), "workspace_damaged"),
        ("keys/campaign.key", key_bytes(1, "model", seed=bytes(32)), "workspace_damaged"),
        ("keys/campaign.key", key_bytes(1, seed=bytes(32)), "workspace_damaged"),
    ],
)
def test_damage_is_told_and_nothing_is_signed(tmp_path, file, content, reason):
    path = make(tmp_path / "work").path / file
    if content is not None:
        path.write_bytes(content)
    elif file == "lock":
        path.mkdir()
    else:
        path.unlink()
    assert refusal(lambda: publish(open_workspace(tmp_path / "work"))) == reason
    assert list((tmp_path / "work" / "published").iterdir()) == []


def test_a_crash_before_the_record_leaves_a_document_that_the_next_lock_records(tmp_path, monkeypatch):
    made = make(tmp_path / "work")

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(rooms.Workspace, "record", crash)
        with pytest.raises(KeyboardInterrupt):
            publish(made)
    assert made.history() == []
    assert header_of(publish(made, now=NOW + 1)).version == 2
    assert [item.version for item in made.history()] == [1, 2]
    assert header_of(made.copy(made.history()[0])).version == 1


def test_other_folders_are_no_workspace(tmp_path):
    assert refusal(open_workspace, tmp_path) == "not_a_workspace"
    assert refusal(open_workspace, tmp_path / "absent") == "not_a_workspace"


def test_a_campaign_counts_as_signed_whatever_its_dates_and_is_not_parsed_if_it_is_not_signed():
    publisher = Publisher()
    raw = publisher.campaign(lifetime=2 * DAY_SECONDS)
    assert signed_campaign(publisher.root(lifetime=2 * DAY_SECONDS), raw).header.name == "mushrooms"
    forged = publisher.sign("campaign", b"\xc1 no payload at all", key(9))
    assert reason_of(DocumentError, signed_campaign, publisher.root(), forged) == "bad_signature"
    unknown = publisher.campaign({"crit": ["later"]})
    assert refusal(signed_campaign, publisher.root(), unknown) == "unknown_crit"


def test_terms_become_the_campaign():
    terms = TERMS._replace(epsilon_micro=3 * MICRO, answers=2, period_seconds=3600, purpose="why", contact="who")
    made = campaign.parse_campaign(build_campaign(small_schema(), terms, 7, NOW))
    assert (made.header.version, made.answers, made.epsilon_per_answer_micro) == (7, 2, 1_500_000)
    assert (made.time_precision, made.purpose, made.contact) == (3600, "why", "who")
    assert made.header.expires - made.header.not_before == terms.lifetime_seconds
    assert made.fit == campaign.Fit("discrete", "posterior")


def test_durations():
    for text, seconds in (("1", 1), ("90m", 5400), ("12h", 43200), ("1d", 86400), ("2w", 1209600)):
        assert parse_duration(text) == seconds
    for text in ("", "d", "0", "0d", "-1", "1.5h", "1 d", "١", "1y", "99999999999"):
        assert reason_of(InputError, parse_duration, text) == "period_invalid"


def test_the_question_about_the_class_alone_can_be_left_out():
    made = campaign.parse_campaign(build_campaign(small_schema(), TERMS._replace(class_question=False), 1, NOW))
    with_it = campaign.parse_campaign(build_campaign(small_schema(), TERMS, 1, NOW))
    assert [question.subject for question in made.questions] == [one.subject for one in with_it.questions[1:]]
    counts = tuple((90, 10) * (question.size // 2) for question in made.questions)
    found = estimate(made, Tally(made.id, tuple(sum(one) for one in counts), counts))
    assert np.exp(fit(found).log_prior)[0] > 0.8
    for changes in ({"postprocess": "paper"}, {"family": "gaussian", "mechanism": "bits"}):
        assert refusal(build_campaign, small_schema(), TERMS._replace(class_question=False, **changes), 1, NOW) == (
            "not_fittable"
        )
    assert reason_of(InputError, fit, found, "paper") == "not_fittable"


# Key files --------------------------------------------------------------------------------------------


CHEAP = Cost(1, 8192)
SECRET = b"correct horse"
WRONG = b"battery staple"


def sealed(passphrase=SECRET, role="campaign", number=5):
    return key_file(role, key(number), passphrase, cost=CHEAP)


def changed(**fields):
    return canonical.pack({**canonical.unpack(sealed().to_bytes()), **fields})


def resealed(**fields):
    return changed(sealed=canonical.pack({**canonical.unpack(sealed().sealed), **fields}))


@pytest.mark.parametrize("passphrase", [None, SECRET, "Schlüssel".encode(), b"x" * 1024])
def test_a_key_comes_back_from_its_file(tmp_path, passphrase):
    made = sealed(passphrase)
    write_key(tmp_path / "a.key", made)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    found = read_key(tmp_path / "a.key")
    assert found == made
    assert (found.role, found.public, found.encrypted) == ("campaign", key(5).public, passphrase is not None)
    assert found.open(lambda: passphrase) == key(5)


def test_an_encrypted_file_shows_no_seed_has_its_own_salt_and_nonce_and_costs_a_second():
    one, other = sealed(), sealed()
    assert key(5).seed not in one.to_bytes()
    assert key(5).seed in sealed(None).to_bytes()
    assert repr(one) == f"<encrypted campaign key {one.id}>"
    assert repr(sealed(None)) == f"<campaign key {one.id}>"
    parts = [canonical.unpack(each.sealed) for each in (one, other)]
    assert all(parts[0][name] != parts[1][name] for name in ("salt", "nonce", "box"))
    assert keys.COST == STANDARD == (3, 256 << 20)


def test_a_wrong_passphrase_says_nothing_and_what_stands_beside_the_box_is_not_believed(monkeypatch):
    with pytest.raises(InputError) as refused:
        sealed().open(lambda: WRONG)
    assert refused.value.reason == "passphrase_wrong"
    assert WRONG.decode() not in everything_said(refused.value)
    assert reason(sealed().open) == "passphrase_missing"
    assert reason(key_file, "root", key(1), b"") == "passphrase_missing"
    for fields in ({"role": "root"}, {"public": key(6).public}):
        assert reason(parse_key(changed(**fields)).open, lambda: SECRET) == "passphrase_wrong"
    from nacl.pwhash import argon2id

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(argon2id, "kdf", fail)
    assert reason(sealed(None).open) is None
    assert reason(sealed, SECRET) == "memory_short"


@examples(60)
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_opens_another_key(position, bit):
    raw = bytearray(sealed().to_bytes())
    raw[position % len(raw)] ^= 1 << bit
    try:
        opened = parse_key(bytes(raw)).open(lambda: SECRET)
    except (InputError, StorageError) as error:
        opened = None
        why = error.reason
    assert opened == key(5) or why in ("key_invalid", "key_newer", "passphrase_wrong", "memory_short")


HOSTILE = [
    *(resealed(memory=memory) for memory in ((1 << 30) + 1, 1 << 62, 0, True, "8192")),
    *(resealed(passes=passes) for passes in (17, 1 << 40, 0)),
    *(resealed(**fields) for fields in ({"salt": bytes(15)}, {"nonce": bytes(25)}, {"box": None})),
    *(changed(sealed=value) for value in (None, b"")),
    *(changed(role=role) for role in ("node", None)),
    *(changed(hearsay_key=number) for number in (0, -1, -(1 << 63))),
    changed(public=bytes(31)),
    *(b"", b"\xc0", b"\x80", b"hello", b"\xdd\xff\xff\xff\xff", canonical.pack({"hearsay_key": "1"})),
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_are_refused_before_any_work(raw):
    tracemalloc.start()
    assert reason(parse_key, raw) == "key_invalid"
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_files_that_are_newer_or_large(tmp_path):
    assert reason(parse_key, canonical.pack({"hearsay_key": 3})) == "key_newer"
    (tmp_path / "a.key").write_bytes(bytes(5000))
    assert reason(read_key, tmp_path / "a.key") == "too_large"


def test_the_public_part_is_a_line_for_one_role():
    line = public_line(sealed())
    assert line == f"hearsay-key-1 campaign {key(5).public.hex()}\n"
    assert parse_public(line.encode(), "campaign") == key(5).public
    assert reason(parse_public, line.encode(), "model") == "wrong_key"
    spoilt = line.replace(key(5).public.hex()[:2], "zz")
    for wrong in ("", "hearsay-key-1 campaign", line.replace("1 c", "2 c"), line[:-3], "\xff" * 80, spoilt):
        assert reason(parse_public, wrong.encode("latin-1"), "campaign") == "key_invalid"
