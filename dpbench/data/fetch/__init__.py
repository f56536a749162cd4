"""Put data into a data folder: by download, from the Hugging Face hub, or from the user's own files."""
