"""``python -m godwit`` is the command ``godwit``.

Python puts the working directory first on ``sys.path`` then, where any ``numpy.py`` would be executed:
it is taken away again. What is imported before this file runs is Python's own and ``godwit``.
"""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]
    from _godwit_command import main

    main()
