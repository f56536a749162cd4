"""How data gets into a data folder: downloads, the hub, files that people bring."""
