"""One file per section of the page. In: the page's stores or model, or what was counted from them.

Out: a section of bounded blocks.
"""
