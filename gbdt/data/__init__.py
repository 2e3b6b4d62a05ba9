"""What training reads: tables, rows and columns, bins, and how bins are stored. Nothing here knows a tree."""
