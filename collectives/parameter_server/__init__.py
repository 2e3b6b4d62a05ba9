"""A sharded, replicated store of arrays that workers push to and pull from."""
