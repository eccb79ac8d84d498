"""What becomes of the final model on each client: its accuracy there, and what fitting it to the client gains."""
