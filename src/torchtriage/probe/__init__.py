"""Runs inside the process of the program: sees regions and calls, runs trials, records what they did."""
