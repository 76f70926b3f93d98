"""Tests of the probe room; a package, so that its helpers are imported relatively."""
