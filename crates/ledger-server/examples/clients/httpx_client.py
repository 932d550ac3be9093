"""Appends one record with httpx: SOCKET is the writer socket, RECORD the JSON."""

import os
import sys

try:
    import httpx
except ImportError:
    print("NOT INSTALLED")
    sys.exit(0)

transport = httpx.HTTPTransport(uds=os.environ["SOCKET"])
with httpx.Client(transport=transport, base_url="http://ledger", timeout=30) as client:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/records", content=os.environ["RECORD"], headers=headers)
    if response.is_error:
        sys.exit(response.text)
    print(response.text)
