"""Where this machine gets Debian from, by its own apt sources (sources.list(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

# Archive areas beside the main archive: they hold no package of their own that is wanted here.
_SIDE_SUITE = re.compile(r"-security|/updates|-updates|-backports|-proposed|-debug")
# Suites that only a Debian mirror has, besides the machine's own code name.
_DEBIAN_SUITES = frozenset(
    ["oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"]
    + ["bookworm", "trixie", "forky", "duke"]
)


class Source(NamedTuple):
    """One entry: packages of `suites` with `components` are found at `uri`."""

    uri: str
    suites: list[str]
    components: list[str]


def parse_list(text: str) -> Iterator[Source]:
    """Entries of the one-line style: deb [ options ] uri suite component..."""
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        match = re.match(r"deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+(\S+)\s*(.*)$", line)
        if match:
            uri, suite, components = match.groups()
            yield Source(uri, [suite], components.split())


def parse_deb822(text: str) -> Iterator[Source]:
    """Entries of the deb822 style: stanzas of fields, with continuation lines."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = _fields(stanza)
        if fields.get("enabled", "yes").lower() in ("no", "false", "without", "off", "disable"):
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        for uri in fields.get("uris", "").split():
            suites = fields.get("suites", "").split()
            yield Source(uri, suites, fields.get("components", "").split())


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line[:1] in (" ", "\t"):
            if name:
                fields[name] += " " + line.strip()
        elif ":" in line:
            name, value = line.split(":", 1)
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def read_sources(main_list: str, parts: str) -> list[Source]:
    """All entries of the file `main_list` and of the folder `parts`, as apt reads them."""
    found: list[Source] = []
    paths = [main_list]
    if os.path.isdir(parts):
        paths += sorted(os.path.join(parts, name) for name in os.listdir(parts))
    for path in paths:
        parse = {".list": parse_list, ".sources": parse_deb822}.get(os.path.splitext(path)[1])
        if parse and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found += parse(file.read())
    return found


def debian_mirrors(sources: list[Source], codename: str | None) -> list[str]:
    """The addresses of Debian's main archive among `sources`, without repetition, in order."""
    known = _DEBIAN_SUITES | ({codename} if codename else set())
    mirrors: list[str] = []
    for source in sources:
        main_suites = [suite for suite in source.suites if not _SIDE_SUITE.search(suite)]
        fits = known.intersection(main_suites) and "main" in source.components
        if fits and not source.uri.startswith("cdrom:") and source.uri not in mirrors:
            mirrors.append(source.uri)
    return mirrors
