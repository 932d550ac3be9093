"""Appends one record with Python's standard library: SOCKET is the writer socket, RECORD the JSON."""

import http.client
import os
import socket


class LedgerConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("ledger", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


connection = LedgerConnection(os.environ["SOCKET"])
headers = {"content-type": "application/json"}
connection.request("POST", "/v1/records", os.environ["RECORD"].encode(), headers)
response = connection.getresponse()
body = response.read().decode()
if response.status not in (200, 201):
    raise SystemExit(body)
print(body)
