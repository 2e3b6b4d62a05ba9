"""Fits that share work: rows prepared once, runs continued instead of started again."""
