"""The data sets; each module registers one."""
