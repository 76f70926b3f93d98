"""Tests of the report room; a package, so that its helpers are imported relatively."""
