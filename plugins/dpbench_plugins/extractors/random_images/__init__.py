"""Images from random processes, for extractors that must not see a photograph. It registers nothing."""
