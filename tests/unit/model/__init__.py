"""Tests of the model room; a package, so that its helpers are imported relatively."""
