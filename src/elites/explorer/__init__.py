"""The explorer: one page that shows the archives of runs, without a server and offline."""
