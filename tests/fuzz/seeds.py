"""Where the fuzzer starts: the documents and files of the conformance vectors, good ones and bad ones."""

from functools import lru_cache

from fuzz import collector_targets
from support.failures import failure
from support.publisher import Publisher
from support.shared import COLLECTOR_KEYS, COLLECTORS, PAIR
from vectors.runner import load_all

from aggregator.collectors.pair import write_pair, write_public
from aggregator.collectors.total import sign_total
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope
from protocol.documents.provisioning import Provisioning, build_provisioning


@lru_cache(maxsize=1)
def _cases():
    return tuple(case for _, case in load_all())


def _documents():
    for case in _cases():
        if case["kind"] == "document":
            yield bytes.fromhex(case["data"])
            yield from (bytes.fromhex(earlier[1]) for earlier in case["before"])
        elif case["kind"] in ("summary", "masked_message", "key_book", "masked_release"):
            yield bytes.fromhex(case["data"])
        elif case["kind"] == "pinned":
            yield bytes.fromhex(case["root"])
    publisher = Publisher()
    yield from (publisher.root(), publisher.root(version=2), publisher.campaign(), publisher.model())


@lru_cache(maxsize=8)
def seeds(target):
    """The distinct inputs that a target starts from, the shortest first."""
    if target == "envelope":
        found = set(_documents()) | {bytes.fromhex(case["data"]) for case in _cases() if case["kind"] == "unpack"}
    elif target in PAYLOAD_TYPES and target != "total":
        whole = [raw for raw in _documents() if failure(read_envelope, raw, target) is None]
        found = {read_envelope(raw, target).payload for raw in whole}
    elif target in ("summaries", "messages"):
        kind = {"summaries": "summary_file", "messages": "message_file"}[target]
        found = {bytes.fromhex("".join(case["parts"])) for case in _cases() if case["kind"] == kind}
    elif target == "request":
        found = {bytes.fromhex(case["data"]) for case in _cases() if case["kind"] == "masked_request"}
    elif target in ("asked", "said"):
        found = collector_targets.exchanged_seeds({"asked": "request", "said": "answer"}[target])
    elif target == "total":
        totals = [collector_targets.honest()[-1]._replace(**each) for each in ({}, {"period": 1}, {"accepted": 1})]
        found = {read_envelope(sign_total(each, COLLECTOR_KEYS[0]), "total").payload for each in totals}
    elif target == "pair":
        found = {write_pair(PAIR), write_pair(PAIR._replace(collectors=COLLECTORS[:1] * 2))}
    elif target == "collector":
        found = {
            write_public(one)
            for one in (*COLLECTORS, COLLECTORS[0]._replace(name="\x1b"), COLLECTORS[0]._replace(name="x" * 1025))
        }
    elif target == "batch":
        found = {bytes.fromhex("".join(case["parts"])) for case in _cases() if case["kind"] == "batch_read"}
    elif target == "provisioning":
        whole = [build_provisioning(Provisioning(fleet, "one", bytes(range(32)))) for fleet in ("a", "fleet" * 200)]
        found = {*whole, *(raw[:-1] + bytes([raw[-1] ^ 1]) for raw in whole)}
    else:
        texts = [case["expect"] for case in _cases() if case["kind"] == "report" and "expect" in case]
        found = {bytes([number]) + bytes.fromhex(text) for number, text in enumerate(texts)}
    return tuple(sorted(found, key=lambda data: (len(data), data)))
