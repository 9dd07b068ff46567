"""Numbers that sum up an archive: plain arrays in, numbers out."""
