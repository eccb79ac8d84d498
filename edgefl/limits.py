"""Limits on what edgefl reads and accepts, with their reasons.

Files and scenarios come from elsewhere. Without limits a few bytes could take all memory, or hours, before the first
message. A limit is far above what is of use: a larger value is a mistake, or the file is hostile.
"""

from __future__ import annotations

# Sizes of files, bytes; checked before the contents are read.

YAML_BYTES = 2**20
"""A scenario with all profiles embedded has some tens of kilobytes."""
JSON_BYTES = 64 * 2**20
"""A JSON file or a graph. The summary of a thousand runs has about one mebibyte."""
PYTHON_BYTES = 2**24
"""A Python file that is imported."""
TRACE_BYTES = 64 * 2**20
"""A capacity trace: a day of milliseconds in Mahimahi's format at 10 Mbit/s has about this size."""
TRACE_FILES = 10_000
"""Files in a folder of traces."""
TRACE_FOLDER_BYTES = 256 * 2**20
"""Their total size."""
AVAILABILITY_BYTES = 256 * 2**20
"""An availability trace of 100,000 devices over some days has about 100 MB."""
PARTITION_BYTES = 2**30
"""The file of a partition; a row of a CSV file takes about ten bytes."""
STEP_TABLE_BYTES = 2**22
"""A table of step times; one of a thousand models has about a hundred kilobytes."""
MEASUREMENT_BYTES = 2**22
"""A measurement of all cases has some tens of kilobytes."""
CLIENT_LOG_BYTES = 2**24
"""A client's log of rounds."""
TABLE_BYTES = 2**30
"""A table of a run directory in memory, unless its file is so large that this is to be expected:"""
TABLE_EXPANSION = 100
"""a larger table may be so many times its file. Compressed tables of runs expand to about ten times."""

REPLY_BYTES = 2**29
"""A recorded reply of a Flower app's client with its context; SQLite stores at most 10^9 bytes in a value."""
REPLIES_BYTES = 2**34
"""All of them in one run: the room that a run in progress takes on the disk at most, besides its log."""

# Contents of files.

DEPTH = 32
"""Levels of nested lists and mappings; edgefl's own files have about eight."""
YAML_VALUES = 100_000
"""Keys and values after all aliases are expanded, so that a few lines cannot represent billions of values. A file as
large as the limit has about 70,000 of them if it is written like edgefl's own; to parse 100,000 takes three seconds."""
LARGEST_INTEGER = 2**63 - 1
"""The largest whole number, as in the tables of a run directory."""
PATH_CHARACTERS = 4096
"""Characters of a path; the limit of Linux."""
TRACE_INTERVALS = 10_000_000
"""Intervals of a trace; 10 million floats have 80 MB."""
FIGURE = 1e60
"""A figure in the tables of a run directory: no simulation comes near it, and sums and products stay finite."""
COUNT = 2**53 - 1
"""A whole number there; a float64 holds each up to this exactly, and no other rounds to one of them."""
TOKEN = 2**31 - 1
"""An integer among the inputs of samples; no model has so many tokens."""
IMAGE_PIXELS = 2**24
"""Pixels of an image that is decoded, so that a few bytes cannot allocate gigabytes."""

# Values in scenarios.

LEAST_CHANGE_SECONDS = 1e-3
"""Mean time between two changes of a capacity; with less, simulating the changes takes longer than all else."""
LEAST_AVAILABILITY_SECONDS = 1.0
"""Period of an availability trace. A shorter one would change so often that simulated time hardly advances."""
SEEDS = 10_000
"""Seeds of a scenario; each is a run of every method."""
NEW_SEEDS = 1000
"""Seeds that are added to a finished run at a time. A larger number is a mistake: comparisons are planned up to it."""
SETTINGS = 100_000
"""Settings of a sweep; each is a run of every method and seed."""
CELLS = 100_000
"""Cells of a network; empty ones take memory and time too."""
RETRIES = 1000
"""Attempts of a transfer after the first one."""
SIDE = 4096
"""Channels, rows or columns of generated images; larger values need too much memory."""
SAMPLE_NUMBERS = 2**26
"""Numbers in a sample of ``--shape``; with more, memory would not suffice to count its step."""
CLASSES = 100_000
"""Classes or tokens; a larger label is not the number of a class."""

# Runs of Flower apps.

SLEEPS_WITHOUT_MESSAGE = 100_000
"""Sleeps of a ServerApp in a row while no message is in progress; a day in steps of a second has 86,400."""

# Messages.

WORD_CHARACTERS = 200
"""Characters of a word in a message: of a number, a key or a path. Paths in use are shorter."""
LINE_CHARACTERS = 1000
"""Characters of a line of a message; the longest list of valid choices has about 700."""
