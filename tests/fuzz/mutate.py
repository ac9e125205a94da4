"""Mutations that know what they mutate: values of a document, pieces of a batch file.

Blind ones rarely get past the checks of a canonical document. Of these, many are accepted or refused late.
"""

from hashlib import sha256
from itertools import pairwise

from fuzz.seeds import seeds

from protocol import canonical, mechanisms
from protocol.batches.batch import END, MARK, TRAILER_BYTES, read_header, trailer
from protocol.documents.provisioning import CHECK_BYTES
from protocol.errors import HearsayError

INTEGERS = (0, 1, 2, 3, 15, 16, 127, 128, 255, 256, 65_535, 65_536, 10**6, (1 << 31) - 1, 1 << 32, (1 << 64) - 1, -1)
TEXTS = ("", "a", "refuse", "missing", "other", "1.0", "-1e300", "1e301", "\u202e", "\x00", "€" * 400, "direct", "oue")
VALUES = (None, True, False, [], {}, b"", *INTEGERS, *TEXTS)
REPAIRED = 2
"""One of so many campaigns gets the mechanisms that follow from its ε, one of so many batches right digests."""


def mutated(target, data, rng, blind):
    """Another input for a target: a known structure changed, or now and then the bytes as they are."""
    if target == "batch":
        return _batch(data, rng, blind)
    if target in ("report", "summaries", "messages") or rng.randrange(8) == 0:
        return blind(data)
    try:
        tree = canonical.unpack(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            tree = _changed(tree, _donor(target, rng), rng, blind)
        if target == "provisioning":
            return _rechecked(canonical.pack(tree))
        if target == "campaign" and rng.randrange(REPAIRED) == 0:
            _repair(tree)
        return canonical.pack(tree)
    except (HearsayError, RecursionError):
        return blind(data)


def _donor(target, rng):
    try:
        return canonical.unpack(rng.choice(seeds(target)))
    except HearsayError:
        return None


def _changed(tree, donor, rng, blind):
    """A tree with one of its values, or keys, replaced, removed, repeated or exchanged."""
    if isinstance(tree, dict) and tree and rng.randrange(12):
        key = rng.choice(sorted(tree))
        action = rng.randrange(10)
        if action == 0:
            return {name: value for name, value in tree.items() if name != key}
        if action == 1:
            return {**tree, rng.choice(TEXTS): tree[key]}
        inner = donor.get(key) if isinstance(donor, dict) else None
        if action == 2 and inner is not None:
            return {**tree, key: inner}
        return {**tree, key: _changed(tree[key], inner, rng, blind)}
    if isinstance(tree, list) and tree and rng.randrange(12):
        place = rng.randrange(len(tree))
        action = rng.randrange(8)
        if action == 0:
            return tree[:place] + tree[place + 1 :]
        if action == 1:
            return [*tree, tree[place]]
        if action == 2:
            return sorted(tree, key=lambda _: rng.random())
        inner = rng.choice(donor) if isinstance(donor, list) and donor else None
        if action == 3 and inner is not None:
            return [*tree[:place], inner, *tree[place:]]
        return [*tree[:place], _changed(tree[place], inner, rng, blind), *tree[place + 1 :]]
    return _other_value(tree, donor, rng, blind)


def _other_value(value, donor, rng, blind):
    action = rng.randrange(5)
    if action == 0 and donor is not None:
        return donor
    if action == 1:
        return rng.choice(VALUES)
    if isinstance(value, int):
        near = value + rng.choice((-1, 1, -2, 2, 10, -10, 1000))
        return max(-(1 << 63), min((1 << 64) - 1, rng.choice((near, value * 2, value // 2, rng.choice(INTEGERS)))))
    if isinstance(value, bytes):
        return blind(value)
    if isinstance(value, str):
        return rng.choice((value + "x", value[1:], blind(value.encode()).decode(errors="replace"), rng.choice(TEXTS)))
    return rng.choice(VALUES)


def _repair(tree):
    """Give questions the mechanisms that follow from the campaign's ε, as an honest publisher would."""
    if not isinstance(tree, dict) or not isinstance(tree.get("questions"), list):
        return
    answers, epsilon = tree.get("answers"), tree.get("epsilon_micro")
    if type(answers) is not int or type(epsilon) is not int or answers < 1:
        return
    for question in tree["questions"]:
        if isinstance(question, dict) and isinstance(question.get("mechanism"), dict):
            name, size = question["mechanism"].get("name"), question.get("size")
            try:
                question["mechanism"] = mechanisms.from_micro(name, epsilon // answers, size).to_dict()
            except (HearsayError, TypeError):
                continue


def _rechecked(data):
    """A provisioning file with the check that its other bytes need."""
    body = data[:-CHECK_BYTES]
    return body + sha256(body).digest()[:CHECK_BYTES]


def _batch(data, rng, blind):
    """Pieces of batches in another order, repeated, cut or changed; digests put right or left as they are."""
    pieces = _pieces(data) or [b""]
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(pieces))
        action = rng.randrange(7)
        if action == 0 and len(pieces) > 1:
            del pieces[place]
        elif action == 1:
            pieces.insert(rng.randrange(len(pieces) + 1), pieces[place])
        elif action == 2:
            pieces.insert(place, rng.choice(_pieces(rng.choice(seeds("batch"))) or [b""]))
        elif action == 3:
            pieces[place] = pieces[place][: rng.randrange(len(pieces[place]) + 1)]
        elif action == 4:
            pieces[place] *= rng.choice((2, 3, 20))
        else:
            pieces[place] = blind(pieces[place])
        pieces = pieces or [b""]
    whole = b"".join(pieces)
    return _with_right_digests(whole) if rng.randrange(REPAIRED) == 0 else whole


def _pieces(data):
    """A file cut where headers, records and trailers begin, as far as they can be told."""
    cuts = {0, len(data)}
    position, length = 0, 0
    while position < len(data):
        header = read_header(data, position) if data.startswith(MARK, position) else None
        if header is not None:
            length, position = header[0].record_length, header[1]
        elif data.startswith(END, position):
            position += TRAILER_BYTES
        elif length and data[position] in (0xC7, 0xC8, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8):
            position += length
        else:
            position += 1
            continue
        cuts.add(min(position, len(data)))
    places = sorted(cuts)
    return [data[start:stop] for start, stop in pairwise(places)]


def _with_right_digests(data):
    """Every trailer gets the number and digest that would prove the batch before it."""
    done, start, records, length = b"", 0, 0, 0
    for piece in _pieces(data):
        header = read_header(piece, 0)
        if header is not None:
            start, records, length = len(done), len(done) + len(piece), header[0].record_length
        if piece.startswith(END) and length:
            piece = trailer((len(done) - records) // length, sha256(done[start:]).digest())  # noqa: PLW2901
        done += piece
    return done
