#!/usr/bin/env python3
"""Answers expressions of the Common Expression Language with Google's implementation for C++.

    answer.py ASKED ANSWERS

ASKED has on its first line a JSON list of inputs, and on every other one `[input, expression]`. Of each, ANSWERS has a
JSON list: `["refused", why]`, `["error", type, why]` or `["value", type, value]`, the value in the words of `oracle.rs`;
or `["unsaid"]`, where the package finds a value that it cannot give to Python.
"""
import datetime
import json
import os
import struct
import sys

from cel_expr_python import cel

CONFIG = """
extensions:
  - name: optional
  - name: strings
    version: 2
  - name: lists
  - name: sets
  - name: two-var-comprehensions
"""
VARIABLES = {
    "f": cel.Type.BOOL,
    "i": cel.Type.INT,
    "d": cel.Type.DOUBLE,
    "s": cel.Type.STRING,
    "l": cel.Type.List(cel.Type.INT),
    "t": cel.Type.List(cel.Type.STRING),
    "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
    "x": cel.Type.DYN,
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
# Version 0.1.3 gives None back once too often for every null, until there is none left.
HELD = [None] * 10_000_000
MICROSECOND = datetime.timedelta(microseconds=1)
NAMES = {
    "NULL": "null_type",
    "TIMESTAMP": "google.protobuf.Timestamp",
    "DURATION": "google.protobuf.Duration",
}


def key(of):
    if isinstance(of, bool):
        return "true" if of else "false"
    return json.dumps(of, ensure_ascii=False)


def written(value):
    of, held = value.type(), value.value()
    if of == cel.Type.DOUBLE:
        return "double:nan" if held != held else "double:" + struct.pack(">d", held).hex()
    if of == cel.Type.UINT:
        return f"{held}u"
    if of == cel.Type.BYTES:
        return "bytes:" + held.hex()
    if of == cel.Type.TIMESTAMP:
        return f"timestamp:{(held - EPOCH) // MICROSECOND}"
    if of == cel.Type.DURATION:
        return f"duration:{held // MICROSECOND}"
    if of == cel.Type.TYPE:
        name = held.name().split("<")[0]
        return "type:" + NAMES.get(name, name.lower())
    if isinstance(held, list):
        return "[" + ", ".join(written(element) for element in held) + "]"
    if isinstance(held, dict):
        return "{" + ", ".join(sorted(f"{key(name)}: {written(of)}" for name, of in held.items())) + "}"
    if held is None or isinstance(held, (bool, int, str)):
        return json.dumps(held, ensure_ascii=False)
    raise TypeError(f"{of.name()} as {type(held).__name__}")


def answer(env, data, expression):
    try:
        compiled = env.compile(expression)
        of = compiled.return_type().name()
    except Exception as error:  # what it raises has no type of its own
        return ["refused", str(error)]
    try:
        value = compiled.eval(data=data)
    except Exception as error:
        return ["error", of, str(error)]
    try:
        if value.type() == cel.Type.ERROR:
            return ["error", of, str(value.value())]
        return ["value", of, written(value)]
    except TypeError as error:
        if "to a Python type" not in str(error):
            raise
        return ["unsaid"]


def main(asked, answers):
    env = cel.NewEnv(config=cel.NewEnvConfigFromYaml(CONFIG), variables=VARIABLES)
    with open(asked, encoding="utf-8") as lines, open(answers, "w", encoding="utf-8") as out:
        inputs = json.loads(next(lines))
        for line in lines:
            at, expression = json.loads(line)
            print(json.dumps(answer(env, inputs[at], expression)), file=out)


main(*sys.argv[1:])
os._exit(0)
