"""Any `torch.nn.Module` through the same strategies; needs the extra `torch`."""
