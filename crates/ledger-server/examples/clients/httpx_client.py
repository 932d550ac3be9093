"""Appends one record with httpx: SOCKET is the writer socket, RECORD the JSON."""

import os

import httpx

transport = httpx.HTTPTransport(uds=os.environ["SOCKET"])
with httpx.Client(transport=transport, base_url="http://ledger", timeout=30) as client:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/records", content=os.environ["RECORD"], headers=headers)
    if response.is_error:
        raise SystemExit(response.text)
    print(response.text)
