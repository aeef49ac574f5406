"""`python -m cutlayer` is `cutlayer`."""

from cutlayer.cli import main

if __name__ == "__main__":
    main()
