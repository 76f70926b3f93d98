"""Tests of the cli room; a package, so that its helpers are imported relatively."""
