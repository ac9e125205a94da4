"""What became of an input: refused for a documented reason, or taken, and then it has a property."""

from functools import wraps

from support.failures import failure

PAYLOAD_REASONS = {"malformed", "unsupported_version"}


def refused(function, *arguments, reasons):
    """The reason of a refusal, which must be one of those documented; None if there was none."""
    error = failure(function, *arguments)
    if error is None:
        return None
    assert error.reason in reasons, error.reason
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason


def taken_by(parser, reasons):
    """Make a target of the property that a parser's results have.

    Args:
        parser: the function, which stays in the target's ``parse``, where tests replace it by a faulty one.
        reasons: with which it may refuse its input.
    """

    def make(check):
        @wraps(check)
        def target(data):
            parse = target.parse
            return refused(parse, data, reasons=reasons) or check(parse(data), data) or "accepted"

        target.parse = parser
        return target

    return make
