"""Whether what a reader of batch files found adds up to the file."""

from protocol.batches.batch import END, TRAILER_BYTES, Batch


def account(data, items, known=()):
    """Check that records, headers, trailers and damage cover every byte of a file once.

    Args:
        data: the file.
        items: all batches and damaged stretches that the reader found in it.
        known: campaigns that the reader knew: their headers may have one wrong bit.
    """
    taken, headers, trailers = [], [], 0
    for item in items:
        if isinstance(item, Batch):
            headers.append(item.header)
            trailers += not item.truncated
            taken += [(start, count * item.header.record_length) for start, count in item.spans]
        else:
            assert item.length > 0
            assert item.reason in ("truncated", "invalid_message")
            taken.append((item.position, item.length))
    position = 0
    for start, length in [*sorted(taken), (len(data), 0)]:
        assert start >= position, "bytes were read twice"
        while position < start:  # headers and trailers are what the items leave out
            if headers and _is_header(data, position, headers[0], known):
                position += len(headers.pop(0).to_bytes())
            else:
                assert data.startswith(END, position), "bytes of no kind were passed over"
                position, trailers = position + TRAILER_BYTES, trailers - 1
        assert position == start, "a header or trailer runs into a record"
        position += length
    assert (headers, trailers) == ([], 0)


def _is_header(data, position, header, known):
    wanted = header.to_bytes()
    found = data[position : position + len(wanted)]
    wrong = (int.from_bytes(found, "big") ^ int.from_bytes(wanted, "big")).bit_count()
    return len(found) == len(wanted) and wrong <= (header.campaign in known)
