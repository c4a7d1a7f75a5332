"""Text file formats, a module each, and the scanners that they share."""
