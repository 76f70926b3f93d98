"""Tests of the investigate room; a package, so that its helpers are imported relatively."""
