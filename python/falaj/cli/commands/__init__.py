"""The commands of the program: a module for each, or a package for a group of them."""
