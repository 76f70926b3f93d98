"""Tests of the reduce room; a package, so that its helpers are imported relatively."""
