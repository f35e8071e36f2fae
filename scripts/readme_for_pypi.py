"""readme_for_pypi.py REF: make the links of README.md absolute, for PyPI and the napari hub.

They point to the files of the tag or branch REF. Pictures are linked as raw files.
"""

import re
import sys
from pathlib import Path

REPOSITORY = "https://github.com/hushpore/hushpore"


def with_absolute_links(text: str, ref: str) -> str:
    """Return Markdown with absolute links and pictures."""
    relative = r"(?!https?:|#|mailto:)"
    text = re.sub(rf"(!\[[^]]*\]\(){relative}", rf"\1{REPOSITORY}/raw/{ref}/", text)
    return re.sub(rf"((?<!!)\[[^]]*\]\(){relative}", rf"\1{REPOSITORY}/blob/{ref}/", text)


if __name__ == "__main__":
    readme = Path("README.md")
    absolute = with_absolute_links(readme.read_text(encoding="utf-8"), sys.argv[1])
    readme.write_text(absolute, encoding="utf-8")
