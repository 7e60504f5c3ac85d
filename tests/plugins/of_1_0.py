#!/usr/bin/python3
"""A plugin of containernetworking/plugins as distributions have them, which speak CNI 1.0, in a
network of 1.1, for tests. It is called by the name of the plugin with `-of-1.0` after it."""

import json
import os
import subprocess
import sys

conf, verb = json.load(sys.stdin), os.environ["CNI_COMMAND"]
if verb in ("STATUS", "GC"):
    sys.exit(0)
conf["cniVersion"] = "1.0.0"
conf["type"] = os.path.basename(sys.argv[0]).removesuffix("-of-1.0")
if "prevResult" in conf:
    conf["prevResult"]["cniVersion"] = "1.0.0"
program = os.path.join("/usr/lib/cni", conf["type"])
sys.exit(subprocess.run([program], input=json.dumps(conf).encode()).returncode)
