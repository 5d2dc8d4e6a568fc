"""Renderers for a plan: `text` for a terminal, `html` for a page without scripts."""
