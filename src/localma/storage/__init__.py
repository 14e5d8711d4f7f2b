"""Files and folders: the prediction cache, row keys, fingerprints, whole files and arrays."""
