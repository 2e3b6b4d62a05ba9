"""Communicators over libraries that bring their own connections. Each needs its library only when it is called."""
