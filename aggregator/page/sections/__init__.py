"""One file per section of the page. In: a subject or what was counted from it. Out: a section of bounded blocks."""
