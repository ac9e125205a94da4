"""What a campaign promises, what lies can do, and the card of a model that says both.

In: a signed campaign, numbers of devices and liars, statistics of reports. Out: the sheet of ``hearsay guarantee``,
alarms about counts that honest devices would hardly give, and a model's card.
"""
