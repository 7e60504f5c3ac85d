"""A name server of somebody else: says one address for every name, over UDP.

    server.py LISTEN PORT ADDRESS
"""

import socket
import struct
import sys

listen, port, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((listen, port))
while True:
    question, client = server.recvfrom(4096)
    end = 12
    while question[end]:
        end += question[end] + 1
    kind = struct.unpack(">H", question[end + 1 : end + 3])[0]
    asked = question[12 : end + 5]
    answers = 1 if kind == 1 else 0
    header = question[:2] + struct.pack(">HHHHH", 0x8180, 1, answers, 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(address)
    server.sendto(header + asked + record * answers, client)
