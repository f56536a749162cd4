"""Plain data that is written and read: specs, results, searches, boards' protocols. No torch, no plugin is called."""
