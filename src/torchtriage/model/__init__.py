"""Variants, outcomes and diagnoses: frozen values that travel between the rooms. Imports nothing else of ours."""
