"""The final model on each client: its accuracy there, and the gain from fitting it to the client."""
