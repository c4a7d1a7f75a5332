"""Files: graphs read from and written to every format, streams of edges, and data sets."""
