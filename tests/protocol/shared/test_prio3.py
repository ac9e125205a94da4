"""Every file of the draft's test vectors of Prio3 gives what it says, on the code of devices."""

from __future__ import annotations

import json

import pytest
from support.vdaf import FILES, FOLDER, encoded, of_file

from protocol.errors import DocumentError
from protocol.shared.field import FIELD128
from protocol.shared.keccak import Xof, derived_seed
from protocol.shared.prio3 import confirmed


def test_the_generator_of_seeds_and_elements_is_the_drafts():
    known = json.loads((FOLDER / "XofTurboShake128.json").read_text())
    arguments = [bytes.fromhex(known[name]) for name in ("seed", "dst", "binder")]
    assert derived_seed(*arguments).hex() == known["derived_seed"]
    assert FIELD128.encode(Xof(*arguments).elements(FIELD128, known["length"])).hex() == known["expanded_vec_field128"]


class Run:
    """The operations of one file, on its own messages, in their order."""

    def __init__(self, name):
        self.data, self.prio3 = of_file(name)
        self.context, self.key = bytes.fromhex(self.data["ctx"]), bytes.fromhex(self.data["verify_key"])
        self.prepared, self.outputs = {}, {}

    def shard(self, report, step):
        vector = encoded(self.prio3.circuit, report["measurement"])
        found = self.prio3.shard(self.context, vector, bytes.fromhex(report["nonce"]), bytes.fromhex(report["rand"]))
        assert found.public.hex() == report["public_share"]
        assert [share.hex() for share in found.inputs] == report["input_shares"]

    def verify_init(self, report, step):
        number = step["aggregator_id"]
        share = self.prio3.share(self.context, number, bytes.fromhex(report["input_shares"][number]))
        prepared = self.prio3.prepared(
            self.key, self.context, number, bytes.fromhex(report["nonce"]), bytes.fromhex(report["public_share"]), share
        )
        assert self.prio3.encode_verifier(prepared.verifier).hex() == report["verifier_shares"][0][number]
        self.prepared[step["report_index"], number] = prepared

    def verifier_shares_to_message(self, report, step):
        verifiers = [self.prio3.decode_verifier(bytes.fromhex(one)) for one in report["verifier_shares"][0]]
        assert self.prio3.message(self.context, verifiers).hex() == report["verifier_messages"][0]

    def verify_next(self, report, step):
        number = step["aggregator_id"]
        message = bytes.fromhex(report["verifier_messages"][0])
        output = confirmed(self.prepared[step["report_index"], number], message)
        assert self.prio3.circuit.field.encode(output).hex() == report["out_shares"][number]
        self.outputs.setdefault(number, []).append(output)

    def aggregate(self, report, step):
        field, number = self.prio3.circuit.field, step["aggregator_id"]
        sums = [sum(each) % field.modulus for each in zip(*self.outputs[number], strict=True)]
        assert field.encode(sums).hex() == self.data["agg_shares"][number]

    def unshard(self, report, step):
        field = self.prio3.circuit.field
        shares = [field.decode(bytes.fromhex(one)) for one in self.data["agg_shares"]]
        total = [sum(each) % field.modulus for each in zip(*shares, strict=True)]
        assert total == (
            self.data["agg_result"] if isinstance(self.data["agg_result"], list) else [self.data["agg_result"]]
        )


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_the_draft_gives_what_it_says(name):
    run = Run(name)
    assert run.data["operations"]
    for step in run.data["operations"]:
        report = run.data["reports"][step["report_index"]] if "report_index" in step else None
        if step["success"]:
            getattr(run, step["operation"])(report, step)
        else:
            with pytest.raises(DocumentError, match="proof_invalid"):
                getattr(run, step["operation"])(report, step)
