"""`python -m athena_assets.cli`: the same as `athena-assets`."""

from athena_assets.cli.main import main

if __name__ == "__main__":
    main()
