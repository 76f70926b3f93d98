"""Renderers: one diagnosis in, one text out."""
