"""The tree that devices fetch from: right at any moment, cheap to repeat, never older than it was."""

import shutil

from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason
from support.killed import every_death
from support.publisher import NOW, Publisher, key, small_schema

from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.roots import ALL, RootChange, change_root, resign
from aggregator.publishing.tree import file_name, write_tree
from aggregator.publishing.workspace import create_workspace, open_workspace
from protocol.documents import campaign, trust
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import DAY_SECONDS
from protocol.epsilon import MICRO

YEAR = 365 * DAY_SECONDS


def publish(work, name="mushrooms", now=NOW):
    return publish_campaign(open_workspace(work.path), small_schema(), CampaignParameters(name, MICRO, "direct"), now)


def change(work, **fields):
    return change_root(open_workspace(work.path), RootChange("campaign", **fields), NOW, YEAR)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_tree_has_all_roots_and_the_newest_of_each_name(work, tmp_path):
    publish(work)
    newest, other = publish(work, now=NOW + 1), publish(work, "a/b é..")
    model = work.publish("model", "mushrooms", NOW, lambda *_: read_envelope(Publisher().model(), "model").payload)
    change(work, fresh=1)
    made = write_tree(work, tmp_path / "www")
    roots = open_workspace(work.path).roots()
    assert files(tmp_path / "www") == {
        "roots/1.hst": roots[0],
        "roots/2.hst": roots[1],
        "campaigns/mushrooms.hsc": newest,
        "campaigns/a%2Fb%20%C3%A9...hsc": other,
        "models/mushrooms.hsm": model,
    }
    assert (made.roots, made.campaigns, made.models, len(made.written)) == (2, 2, 1, 5)
    assert made.written[:2] == ("roots/1.hst", "roots/2.hst")
    assert (tmp_path / "www" / "reports").is_dir()


def test_a_repetition_writes_nothing_and_damage_is_repaired(work, tmp_path):
    publish(work)
    write_tree(work, tmp_path / "www")
    before, whole = {path: path.stat().st_mtime_ns for path in (tmp_path / "www").rglob("*")}, files(tmp_path / "www")
    assert write_tree(work, tmp_path / "www").written == ()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "www").rglob("*")} == before
    for name in whole:
        (tmp_path / "www" / name).write_bytes(b"x")
    write_tree(work, tmp_path / "www")
    assert files(tmp_path / "www") == whole
    publish(work)
    assert write_tree(work, tmp_path / "www").written == ("campaigns/mushrooms.hsc",)


def test_the_end_and_new_signatures_reach_the_tree(work, tmp_path):
    publish(work)
    end = end_campaign(work, "mushrooms", NOW)
    write_tree(work, tmp_path / "www")
    assert (tmp_path / "www" / "campaigns" / "mushrooms.hsc").read_bytes() == end
    change(work, fresh=1, drop=ALL)
    made = write_tree(work, tmp_path / "www")
    assert [item.version for item in made.lacking] == [2]
    assert made.written == ("roots/2.hst",)
    resign(open_workspace(work.path), NOW)
    assert write_tree(work, tmp_path / "www").written == ("campaigns/mushrooms.hsc",)


def test_a_draft_stays_out_and_the_version_before_it_in(work, tmp_path):
    first = publish(work)
    write_tree(work, tmp_path / "www")
    change(work, add=(key(41).public,), threshold=2)
    change(work, threshold=1)
    served = tmp_path / "www" / "campaigns" / "mushrooms.hsc"
    write_tree(work, tmp_path / "www")
    assert served.read_bytes() == first
    change(work, threshold=2)
    publish(work)
    made = write_tree(work, tmp_path / "www")
    assert [(item.name, item.version) for item in made.lacking] == [("mushrooms", 2)]
    assert served.read_bytes() == first


def test_a_tree_never_goes_back(work, tmp_path):
    publish(work)
    shutil.copytree(work.path, tmp_path / "backup")
    old = open_workspace(tmp_path / "backup")
    publish(work)
    write_tree(work, tmp_path / "www")
    before = files(tmp_path / "www")
    assert reason(write_tree, old, tmp_path / "www") == "tree_newer"
    publish(old, now=NOW + 1)
    assert reason(write_tree, open_workspace(old.path), tmp_path / "www") == "tree_newer"
    foreign = create_workspace(tmp_path / "foreign", name="workspace", now=NOW)
    assert reason(write_tree, foreign, tmp_path / "www") == "tree_newer"
    assert files(tmp_path / "www") == before
    shutil.copytree(work.path, tmp_path / "before")  # of a root that the copy does not know
    change(work, fresh=1)
    write_tree(work, tmp_path / "www")
    assert reason(write_tree, open_workspace(tmp_path / "before"), tmp_path / "www") == "tree_newer"


def test_places_and_names_that_no_file_can_have(work, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert reason(write_tree, work, tmp_path / "file") == "io_failed"
    assert reason(write_tree, work, tmp_path / "absent" / "www") == "io_failed"
    publish(work)
    publish(work, "é" * 60)
    made = write_tree(work, tmp_path / "www")
    assert (made.unnamable, made.campaigns) == (("é" * 60,), 1)


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_names_become_one_part_of_a_path_and_never_meet(one, other):
    for text in (one, other):
        if any("\ud800" <= character <= "\udfff" for character in text):
            return
    place = file_name("campaign", one)
    assert place.count("/") == 1
    assert place.isascii()
    assert (place == file_name("campaign", other)) == (one == other)


def test_a_death_at_any_moment_leaves_a_tree_that_devices_can_follow(work, tmp_path):
    """Whatever is there: each file is whole, and the campaign is accepted under the roots beside it."""
    publish(work)
    old, new = tmp_path / "old", tmp_path / "www"
    write_tree(work, old)
    change(work, fresh=1, drop=ALL)
    resign(open_workspace(work.path), NOW)
    shutil.copytree(old, new)
    deaths = 0
    for number in every_death(lambda: write_tree(open_workspace(work.path), new)):
        deaths = number
        roots = [(new / "roots" / f"{n}.hst") for n in (1, 2)]
        chain = [path.read_bytes() for path in roots if path.exists()]
        state = trust.install_roots(trust.pin(chain[0], NOW), chain, NOW)
        raw = (new / "campaigns" / "mushrooms.hsc").read_bytes()
        if raw != (old / "campaigns" / "mushrooms.hsc").read_bytes():
            assert trust.verify(state, raw, "campaign", NOW, campaign.UNDERSTOOD).header.version == 1
        shutil.rmtree(new)
        shutil.copytree(old, new)
    assert deaths >= 4
    assert trust.pin((new / "roots" / "2.hst").read_bytes(), NOW).root.header.version == 2
