"""A conversion webhook as an operator has one: `hostPort` of v1 is `host` and `port` of v2.

Usage: converter.py ADDRESS PORT CERTIFICATE KEY SECONDS, where an answer takes so many seconds.
"""

import http.server
import json
import ssl
import sys
import time

address, port, certificate, key, seconds = sys.argv[1:]


def converted(thing, version):
    spec = thing["spec"]
    if version.endswith("/v2"):
        host, port_of_it = spec.pop("hostPort").split(":")
        spec.update(host=host, port=port_of_it)
    else:
        spec["hostPort"] = spec.pop("host") + ":" + spec.pop("port")
    thing["apiVersion"] = version
    return thing


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(length))["request"]
        print("asked for", len(request["objects"]), flush=True)
        time.sleep(float(seconds))
        version = request["desiredAPIVersion"]
        review = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "response": {
                "uid": request["uid"],
                "result": {"status": "Success"},
                "convertedObjects": [converted(one, version) for one in request["objects"]],
            },
        }
        answer = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("listening", flush=True)
server.serve_forever()
