"""Plain data that is written and read: specs, results, searches and boards. No torch; no plugin is called."""
