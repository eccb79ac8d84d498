"""Methods: recipes made of objectives, local rules, server updates, payloads and codecs."""
