"""What runs inside a version's environment, by path, with that environment's interpreter. Standard library only.

Nothing of torchtriage can be imported there, and torch may be any release, or none, or broken.
"""
