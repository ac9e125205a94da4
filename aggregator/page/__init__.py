"""A store or a model as one self-contained HTML page. In: stores, a model, evaluations, a trust root. Out: HTML text.

``subject`` reads what the page is about, ``sections`` holds one file per section, ``rendering`` makes HTML of sections
and bounds the size of the page. ``report`` is the function of ``hearsay report``.
"""
