"""Tests of the lab room; a package, so that its helpers are imported relatively."""
