"""Everything at once, on the embedded AWS: `python -m athena_assets.demo`."""
