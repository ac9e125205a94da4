"""One setting for all property tests: no deadline on a busy machine, and the same examples for everyone.

``pytest --hypothesis-profile=explore`` looks for new examples.
"""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("steady")
