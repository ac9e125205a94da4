"""Shared answers: a device splits its exact record into two shares, for two collectors of whom at least one is honest.

A record as a vector of zeros and ones and the device's random bytes go in; out come two shares with a proof that they
add up to a permitted vector, and the checks by which both collectors accept the proof without learning the vector.
The scheme is Prio3 of draft-irtf-cfrg-vdaf, version 20. Start reading in :mod:`protocol.shared.prio3`.
"""
