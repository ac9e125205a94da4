"""Facts about a model that travel inside the signed file. In: statistics. Out: the map of the card, and its words.

``making`` has the whole card, ``influence`` one part of it: how much each feature tells about the class. ``words`` puts
the card of any model into sections for people.
"""
