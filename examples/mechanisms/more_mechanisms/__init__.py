"""Subset selection and Hadamard response, in a package of their own."""
