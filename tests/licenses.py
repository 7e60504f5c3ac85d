#!/usr/bin/env python3
"""Prints the licence texts of every crate that goes into the named packages' binaries: each text once, with the crates
it belongs to. Fails for a crate that names no licence.

    tests/licenses.py PACKAGE...

What is linked is cargo's answer (normal dependencies, this machine's target); texts come from the crates' own files.
"""
import json
import pathlib
import re
import subprocess
import sys

FILES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"licenses.py: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def linked(packages):
    """(name, version) of everything that cargo links into the packages."""
    found = set()
    for package in packages:
        tree = run("cargo", "tree", "--locked", "-e", "normal", "--prefix", "none", "--format", "{p}", "-p", package)
        for line in tree.splitlines():
            words = line.split()
            if len(words) >= 2:
                found.add((words[0], words[1].removeprefix("v")))
    return found


def texts_of(directory):
    files = sorted(path for path in directory.iterdir() if path.is_file() and FILES.match(path.name))
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def main(packages):
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1"))
    wanted = linked(packages)
    crates = [p for p in metadata["packages"] if p["source"] and (p["name"], p["version"]) in wanted]
    crates.sort(key=lambda p: (p["name"], p["version"]))
    unlicensed = [p["name"] for p in crates if not p["license"] and not p["license_file"]]
    if unlicensed:
        sys.exit(f"licenses.py: no licence is named by: {', '.join(unlicensed)}")
    print("Coracle is licensed under Apache-2.0 (LICENSE). Its binaries contain these crates:\n")
    by_text = {}
    for crate in crates:
        print(f"  {crate['name']} {crate['version']}: {crate['license'] or 'see below'}")
        for text in texts_of(pathlib.Path(crate["manifest_path"]).parent):
            by_text.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    print("\nSQLite, inside libsqlite3-sys, is in the public domain. libseccomp (LGPL-2.1) is linked dynamically.")
    for text, owners in sorted(by_text.items(), key=lambda item: item[1]):
        print(f"\n{'=' * 100}\n{', '.join(owners)}\n{'-' * 100}\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
