"""Tests of the oracle room; a package, so that its helpers are imported relatively."""
