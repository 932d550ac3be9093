// Appends one record with Node's http module: SOCKET is the writer socket, RECORD the JSON.
import { request } from "node:http";

const body = Buffer.from(process.env.RECORD);
const call = request({
  socketPath: process.env.SOCKET,
  method: "POST",
  path: "/v1/records",
  headers: { host: "ledger", "content-type": "application/json", "content-length": body.length },
  timeout: 30_000,
});
call.on("timeout", () => call.destroy(new Error("no answer in 30 s")));
call.on("response", async (response) => {
  let text = "";
  for await (const chunk of response) text += chunk;
  if (response.statusCode >= 300) {
    console.error(text);
    process.exitCode = 1;
  } else {
    console.log(text);
  }
});
call.end(body);
