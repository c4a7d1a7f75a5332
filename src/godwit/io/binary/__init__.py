"""Binary file formats, a module each."""
