"""Beside small_bug.py: a call that writes to one of two arguments, which share memory from the second call on."""


def decay_and_mix(a, b):
    a.mul_(2)
    return a + b
