// Serves the files of the app. Any other web server can do the same.
import { readFileSync } from "node:fs";
import http from "node:http";

const { redirect_uri: redirectUri } = JSON.parse(readFileSync("app.json"));
const types = { html: "text/html; charset=utf-8", js: "text/javascript", json: "application/json" };
const files = new Map(
  ["index.html", "app.js", "app.json", "node_modules/oauth4webapi/build/index.js"].map((name) => [`/${name}`, name]),
);
files.set("/", "index.html");
const { port } = new URL(redirectUri);
http
  .createServer((request, answer) => {
    const name = files.get(request.url.split("?")[0]);
    if (!name) return answer.writeHead(404).end();
    answer.setHeader("content-type", types[name.split(".").pop()]);
    answer.end(readFileSync(name));
  })
  .listen(port, "127.0.0.1", () => console.log(`open http://localhost:${port}/`));
