"""Compiled functions of flat vectors."""
