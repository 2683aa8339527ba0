"""Writes docs/config.md, the page of all keys of a config: python docs/keys.py"""

from pathlib import Path

from bertjax.programs.config_page import page

if __name__ == "__main__":
    Path(__file__).with_name("config.md").write_text(page(), encoding="utf-8")
