"""What the engine and the communication layer both stand on: cores, files, processes, random numbers."""
