"""Is what the embedded AWS needs installed? Importing it would not tell: its server is another process."""

from __future__ import annotations

import importlib.util

from athena_assets.errors import AthenaAssetsError

_NEEDED = ("moto", "flask", "duckdb", "pyarrow")  # flask: of moto[server]


class ExtraMissing(AthenaAssetsError):
    """The extra `local` is not installed. Nothing was started."""


def require_local(wanted_by: str) -> None:
    """Raises ExtraMissing if a package of the extra `local` is not there. Imports none of them."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            wanted_by,
            f"the embedded AWS needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            not_done="It was not started.",
            next_step="pip install 'athena_assets[local]'",
        )
