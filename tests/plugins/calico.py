#!/usr/bin/python3
"""A CNI plugin in the shape of Calico's, for tests: a link from the node to each pod without a
bridge, an address of 32 bits, a gateway that the node answers for whoever asks (proxy ARP), a
route to each pod, and addresses of blocks of its own."""

import hashlib
import ipaddress
import json
import os
import subprocess
import sys

GATEWAY = "169.254.1.1"


def run(*words, within=None):
    enter = ["nsenter", f"--net={within}"] if within else []
    subprocess.run([*enter, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def fail(code, message):
    print(json.dumps({"cniVersion": "1.1.0", "code": code, "msg": message}))
    sys.exit(1)


def link_of(container):
    return "cali" + hashlib.sha1(container.encode()).hexdigest()[:11]


def claims(conf):
    """Which address is whose."""
    for name in os.listdir(conf["dataDir"]):
        with open(os.path.join(conf["dataDir"], name)) as file:
            yield name, file.read()


def claim(conf, container):
    for address in ipaddress.ip_network(conf["block"]):
        try:
            with open(os.path.join(conf["dataDir"], str(address)), "x") as file:
                file.write(container)
            return str(address)
        except FileExistsError:
            pass
    fail(100, f"no address is left in {conf['block']}")


def setting(link, name, value):
    with open(f"/proc/sys/net/ipv4/{name.format(link)}", "w") as file:
        file.write(value)


def add(conf, container, netns):
    address, link = claim(conf, container), link_of(container)
    run("ip", "link", "add", link, "mtu", "1450", "type", "veth", "peer", "name", "caltmp")
    run("ip", "link", "set", "caltmp", "netns", netns)
    for line in [
        "link set caltmp name eth0",
        "link set lo up",
        f"address add {address}/32 dev eth0",
        "link set eth0 up",
        f"route add {GATEWAY} dev eth0 scope link",
        f"route add default via {GATEWAY} dev eth0",
    ]:
        run("ip", *line.split(), within=netns)
    run("ip", "link", "set", link, "address", "ee:ee:ee:ee:ee:ee", "up")
    setting(link, "conf/{}/proxy_arp", "1")
    setting(link, "conf/{}/forwarding", "1")
    setting(link, "neigh/{}/proxy_delay", "0")
    run("ip", "route", "add", address, "dev", link, "scope", "link")
    result = {"interfaces": [{"name": link}], "ips": [{"address": f"{address}/32"}]}
    print(json.dumps(dict(result, cniVersion="1.1.0")))


def delete(conf, container):
    # The route goes with its link.
    if os.path.exists(f"/sys/class/net/{link_of(container)}"):
        run("ip", "link", "delete", link_of(container))
    for address, owner in list(claims(conf)):
        if owner == container:
            os.remove(os.path.join(conf["dataDir"], address))


def main():
    conf, verb = json.load(sys.stdin), os.environ["CNI_COMMAND"]
    os.makedirs(conf["dataDir"], exist_ok=True)
    container = os.environ.get("CNI_CONTAINERID", "")
    if verb == "ADD":
        add(conf, container, os.environ["CNI_NETNS"])
    elif verb == "DEL":
        delete(conf, container)
    elif verb == "STATUS" and not os.path.exists(conf["datastore"]):
        fail(50, f"error getting ClusterInformation: {conf['datastore']} is not there")
    elif verb == "GC":
        valid = {one["containerID"] for one in conf["cni.dev/valid-attachments"]}
        for container in {owner for _, owner in claims(conf)} - valid:
            delete(conf, container)


main()
