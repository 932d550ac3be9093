// Appends one record with undici 7: SOCKET is the writer socket, RECORD the JSON. UNDICI may name
// the installed package.
let undici;
try {
  undici = await import(process.env.UNDICI || "undici");
} catch {
  console.log("NOT INSTALLED");
  process.exit(0);
}
const { Client } = undici.default ?? undici;
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
