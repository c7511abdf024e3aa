"""What answers over an archive owe to it: that it is whole, that estimates are honest, that repair is exact, that sums and late joins are those of all rows."""
