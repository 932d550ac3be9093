"""The webhook receiver's half that appends, for the demo: records on standard input, receipts on standard output.

usage: intake.py SOCKET

Python's standard library only. A record without an answer is sent again as it is: its record_id makes that safe.
"""

import http.client
import json
import socket
import sys
import time

GIVE_UP_AFTER = 60


class LedgerConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path):
        super().__init__("ledger", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def append(connection, record):
    """Sends a record until there is an answer."""
    end = time.monotonic() + GIVE_UP_AFTER
    while True:
        try:
            connection.request("POST", "/v1/records", record, {"content-type": "application/json"})
            response = connection.getresponse()
            status, body = response.status, response.read()
            if status != 503:
                return status, json.loads(body)
            why = body.decode()
        except (OSError, http.client.HTTPException) as error:
            why = repr(error)
        connection.close()
        if time.monotonic() > end:
            raise SystemExit(f"no answer in {GIVE_UP_AFTER} s: {why}")
        time.sleep(0.02)


def main():
    connection = LedgerConnection(sys.argv[1])
    for line in sys.stdin.buffer:
        status, answer = append(connection, line)
        if status in (200, 201):
            said = answer["receipt"] | {"duplicate": answer["duplicate"]}
        else:
            said = {"error": answer}
        print(json.dumps(said), flush=True)


main()
