"""`python3 -m minimark PAGE [-o FILE] [--contents]` renders one page."""

import argparse
from pathlib import Path

from minimark.render import to_html
from minimark.stats import reading_minutes
from minimark.toc import contents


def main() -> None:
    parser = argparse.ArgumentParser(prog="minimark")
    parser.add_argument("page", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--contents", action="store_true", help="put a table of contents first")
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    html = to_html(text)
    if options.contents:
        html = f"{contents(text)}\n{html}"
    if options.output is None:
        print(html)
        return
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(html + "\n", encoding="utf-8")
    print(f"{options.output}: {len(html):,} characters, {reading_minutes(text)} min to read")


if __name__ == "__main__":
    main()
