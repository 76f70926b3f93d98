"""From a failing program to a short script that fails in the same way: passes over Python source, and their search."""
