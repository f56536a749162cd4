"""Plain records that are written and read: specs, results, searches and boards. No torch; no plugin is called."""
