"""Studies: many runs planned, executed and compared as one."""
