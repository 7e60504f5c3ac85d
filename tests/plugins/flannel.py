#!/usr/bin/python3
"""A CNI plugin in the shape of flannel's, for tests: it takes what its daemon has written of the
node (subnet.env), has the plugin `bridge` do the work, and remembers what it has told it."""

import json
import os
import subprocess
import sys


def delegate(verb, conf, **about):
    for directory in os.environ["CNI_PATH"].split(":"):
        program = os.path.join(directory, "bridge")
        if os.path.exists(program):
            break
    else:
        fail(100, "no plugin bridge in CNI_PATH")
    environment = dict(os.environ, CNI_COMMAND=verb, **about)
    answer = subprocess.run([program], input=conf, env=environment, stdout=subprocess.PIPE)
    return answer.returncode, answer.stdout


def fail(code, message):
    print(json.dumps({"cniVersion": "1.1.0", "code": code, "msg": message}))
    sys.exit(1)


def subnet(conf):
    try:
        with open(conf["subnetFile"]) as lines:
            return dict(line.strip().split("=", 1) for line in lines)
    except OSError as error:
        fail(50, f"loadFlannelSubnetEnv failed: {error}")


def add(conf, scratch):
    env = subnet(conf)
    told = dict(conf["delegate"], name=conf["name"], type="bridge", cniVersion="1.0.0")
    told["mtu"] = int(env["FLANNEL_MTU"])
    told["ipMasq"] = env["FLANNEL_IPMASQ"] != "true"
    told["ipam"] = {
        "type": "host-local",
        "dataDir": conf["ipamDir"],
        "ranges": [[{"subnet": env["FLANNEL_SUBNET"]}]],
        "routes": [{"dst": env["FLANNEL_NETWORK"]}],
    }
    text = json.dumps(told).encode()
    with open(scratch, "wb") as file:
        file.write(text)
    code, answer = delegate("ADD", text)
    sys.stdout.buffer.write(answer)
    sys.exit(code)


def delete(scratch, **about):
    try:
        with open(scratch, "rb") as file:
            told = file.read()
    except FileNotFoundError:
        return
    code, answer = delegate("DEL", told, **about)
    if code != 0:
        sys.stdout.buffer.write(answer)
        sys.exit(code)
    os.remove(scratch)


def main():
    conf, verb = json.load(sys.stdin), os.environ["CNI_COMMAND"]
    data = conf["dataDir"]
    os.makedirs(data, exist_ok=True)
    scratch = os.path.join(data, os.environ.get("CNI_CONTAINERID", ""))
    if verb == "ADD":
        add(conf, scratch)
    elif verb == "DEL":
        delete(scratch)
    elif verb == "STATUS":
        subnet(conf)
    elif verb == "GC":
        valid = {one["containerID"] for one in conf["cni.dev/valid-attachments"]}
        for name in set(os.listdir(data)) - valid:
            delete(os.path.join(data, name), CNI_CONTAINERID=name, CNI_IFNAME="eth0", CNI_NETNS="")


main()
