"""``python -m godwit`` is the command ``godwit``."""

from godwit.cli import main

if __name__ == "__main__":
    main()
