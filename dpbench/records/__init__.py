"""Records that are stored in files: specs, results, searches and boards. No torch; no plugin is called."""
