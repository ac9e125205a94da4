"""Records of what ``hearsay design`` and ``hearsay refine`` decided, and why.

In: a map of text, integers and small tables. Out: the table ``[decision]`` of a schema file; the copy in a workspace,
by the id of the campaign made from the file; the entry ``chosen`` of a model's card.
"""
