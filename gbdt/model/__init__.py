"""What training leaves behind: trees, the forest that predicts, and the model file."""
