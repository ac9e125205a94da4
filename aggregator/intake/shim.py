from typing import NamedTuple, Any
import numpy as np
from aggregator.intake.columns import Columns
from aggregator.intake import decode as _d
from protocol.batch import read_batches, Damage
class Block(NamedTuple):
    records: Any; positions: Any; proven: bool; digests: tuple; claim: bytes; rejected: dict; pieces: tuple
class Files(NamedTuple):
    records: Any; file: Any; digests: list; left_over: list
class Decoder(_d.Decoder):
    def blocks(self, data, *, now, most=1<<20):
        data = bytes(data)
        digests=[]; claims=[]
        for f in read_batches(data, {self._campaign.id: self._layout}):
            if not isinstance(f, Damage):
                (digests if f.proven else claims).append(f.digest)
        found = self.decode(data, now=now)
        rej, pieces = found.rejected, found.pieces
        for proven in (True, False):
            rec = found.records.take(found.records.proven==proven)
            pos = found.positions[found.records.proven==proven]
            claim = claims[0] if claims and len(claims)==1 and not proven else b""
            for s in range(0, max(1,rec.size), most):
                yield Block(rec.take(slice(s,s+most)), pos[s:s+most], proven, tuple(digests) if proven and s==0 else (), claim, rej, pieces)
                rej, pieces = {}, ()
    def whole_files(self, datas, *, now):
        return Files(Columns.empty(self._layout.answer_bytes), np.empty(0,np.intp), [()]*len(datas), list(range(len(datas))))
