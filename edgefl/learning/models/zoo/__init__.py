"""The models that come with edgefl, one file each."""
