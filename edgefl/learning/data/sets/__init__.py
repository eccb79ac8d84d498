"""The data sets, one file each; a module here registers its own."""
