"""How processes and threads become ranks: addresses, handshakes, the mesh, launching."""
