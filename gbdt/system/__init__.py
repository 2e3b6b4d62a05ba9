"""What the engine and the communication layer ask of the operating system: cores, files, processes."""
