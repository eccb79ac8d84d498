"""The command line: arguments, progress and printing, nothing else."""
