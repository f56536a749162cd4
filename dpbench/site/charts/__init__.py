"""The charts of the site: drawn by matplotlib when it is built, SVG within the page, in the colours of its theme."""
