"""The libraries that pages run, taken from installed packages when the site is built: DataTables and Vega.

Each becomes a plain script that sets one global, as a page that is opened from disk may not import modules.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from importlib.metadata import distribution
from pathlib import Path

from dpbench.errors import DataError

EXTRA = ("altair", "itables", "jinja2", "vl_convert")
_EXPORTS = re.compile(r"\bexport\s*\{([^{}]*)\}\s*;?")
_DEFAULT = re.compile(r"([\w$]+)\s+as\s+default")
NOTICE = """\
This folder holds scripts of others, copied unchanged but for how they are loaded.

datatables.js   DataTables, jQuery and their parts, as bundled by itables {itables}; each part's notice stands at the
                end of the file, and itables' own licence below.
vega.js         Vega, Vega-Lite and Vega-Embed (University of Washington Interactive Data Lab, BSD 3-Clause) with D3
                (Mike Bostock, ISC) and their parts, as bundled by vl-convert-python {vega}, whose licence, of the same
                words as Vega's, is below.
"""


def check_installed() -> None:
    """Refuse to begin where a package of the extra `board` is missing.

    Raises:
        DataError: names what is missing and how to install it.
    """
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(
            f"The leaderboard's page needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: pip install 'dpbench-vision[board]'."
        )


@functools.cache
def libraries() -> dict[str, bytes]:
    """Return the scripts and their notices by file name.

    Raises:
        DataError: a bundle does not look as expected.
    """
    import vl_convert

    notice = NOTICE.format(itables=distribution("itables").version, vega=distribution("vl-convert-python").version)
    licences = [_licence(name) for name in ("itables", "vl-convert-python")]
    return {
        "datatables.js": tables_script(_tables_bundle()).encode(),
        "vega.js": vega_script(vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")).encode(),
        "licences.txt": "\n".join([notice, *licences]).encode(),
    }


def _tables_bundle() -> str:
    """Return the file without importing itables, which brings pandas."""
    for file in distribution("itables").files or ():
        if file.name == "dt_bundle.js":
            return Path(str(file.locate())).read_text(encoding="utf-8")
    raise DataError("Expected package itables to come with dt_bundle.js, found none. Install it anew.")


def tables_script(module: str) -> str:
    """Return the DataTables bundle, a module, as a script that sets `DataTable`.

    Raises:
        DataError: it has not one list of exports with a default, or it imports.
    """
    exports = list(_EXPORTS.finditer(module))
    default = _DEFAULT.search(exports[0][1]) if len(exports) == 1 else None
    if default is None or re.search(r"(?:^|[;}\n])\s*import\s*[\w{*\"']", module):
        raise DataError(
            f"Expected itables' dt_bundle.js to be one module with a default export and no imports, got {len(exports)} "
            "lists of exports. Install itables 2.9: pip install 'itables~=2.9'."
        )
    start, end = exports[0].span()
    return f'(() => {{\n"use strict";\n{module[:start]}window.DataTable={default[1]};{module[end:]}\n}})();\n'


def vega_script(bundle: str) -> str:
    """Return the Vega bundle as a script that sets `vegaEmbed` and keeps all its other names to itself.

    Raises:
        DataError: it does not set `vegaEmbed`.
    """
    if not re.search(r"window\.vegaEmbed\s*=", bundle):
        raise DataError(
            "Expected vl-convert's JavaScript bundle to set window.vegaEmbed, it does not. "
            "Install another release: pip install 'vl-convert-python~=1.9'."
        )
    return f'(() => {{\n"use strict";\n{bundle}\n}})();\n'


def _licence(name: str) -> str:
    for file in distribution(name).files or ():
        if file.name.upper().startswith("LICEN"):
            text = Path(str(file.locate())).read_text(encoding="utf-8")
            return f"{'-' * 100}\n{name}\n\n{text.strip()}\n"
    raise DataError(f"Expected package {name} to come with its licence, found none. Install it anew.")
