"""Ways to move the messages of a program between ranks, all behind the contract in `contract.py`."""
