"""The two forms that GEP alone needs: an embedding in a public basis, and what it leaves of a row."""
