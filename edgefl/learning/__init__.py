"""Data, models as blocks, and what a federated-learning method is made of. There is no clock in here."""
