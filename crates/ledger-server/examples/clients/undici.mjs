// Appends one record with undici 7: SOCKET is the writer socket, RECORD the JSON.
import { Client } from "undici";

const client = new Client("http://ledger", { socketPath: process.env.SOCKET, headersTimeout: 30_000 });
const { statusCode, body } = await client.request({
  method: "POST",
  path: "/v1/records",
  headers: { "content-type": "application/json" },
  body: process.env.RECORD,
});
const text = await body.text();
await client.close();
if (statusCode >= 300) {
  console.error(text);
  process.exitCode = 1;
} else {
  console.log(text);
}
