"""Ways to make one update of many: robust ones, private ones, and sums that nobody can look into."""
