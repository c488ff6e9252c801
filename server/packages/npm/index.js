// A Trefoil server for the tests of an app: it is ready at once, and forgets everything when it stops. It ends with the
// process that started it, however that ends, and does not keep it from ending. README.md shows its use.

const { execFile, spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { promisify } = require("node:util");
const { path } = require("./programs.js");

const CLIENT = "tests";
// Milliseconds until a server must be ready, and the lines of its log that an error shows.
const PATIENCE = 60_000;
const SHOWN = 20;

class Trefoil {
  // Starts a server on a free port, with the demo project and a client of its own.
  static async start({ program = path("trefoil"), scope = "system/*.cruds" } = {}) {
    const server = new Trefoil();
    Object.assign(server, { program, scope });
    await server.launch([]);
    return server;
  }

  // The server that another process started, by its `facts`. Only that process can stop it.
  static attach(facts) {
    return Object.assign(new Trefoil(), facts);
  }

  // What another process needs to use this server, as JSON.
  get facts() {
    const { baseUrl, fhirBase, data, demo, program, scope, secret } = this;
    return { baseUrl, fhirBase, data, demo, program, scope, secret };
  }

  async launch(options) {
    const facts = JSON.parse(await this.announced(options));
    // Users and clients of the demo project, with passwords, secrets and keys, are in `demo`.
    Object.assign(this, { baseUrl: facts.base_url, fhirBase: facts.fhir_base, data: facts.data, demo: facts.demo });
    const add = ["client", "add", CLIENT, "--json", "--data", this.data, "--scope", this.scope];
    add.push("--auth-method", "client_secret_basic", "--grant-type", "client_credentials");
    const { stdout } = await promisify(execFile)(this.program, add);
    const records = stdout.split("\n").filter((record) => record.startsWith("{")).map((record) => JSON.parse(record));
    this.secret = records.find((record) => record.client_secret).client_secret;
  }

  // The line that the server prints when it is ready.
  announced(options) {
    // The server ends when this pipe to its standard input closes.
    const command = ["serve", "--ephemeral", "--insecure-http", ...options];
    this.process = spawn(this.program, command, { stdio: "pipe" });
    const { process: server, program } = this;
    this.ended = new Promise((resolve) => server.once("close", resolve));
    const log = [];
    createInterface(server.stderr).on("line", (line) => log.push(line) > SHOWN && log.shift());
    // A server that is not stopped does not keep the tests from ending.
    this.parts = [server, server.stdin, server.stdout, server.stderr];
    for (const part of this.parts) part.unref();
    return new Promise((resolve, reject) => {
      const fail = (why) => {
        server.kill("SIGKILL");
        reject(new Error([why, ...log].join("\n")));
      };
      const late = setTimeout(() => fail(`${program} was not ready after ${PATIENCE / 1000} s`), PATIENCE);
      const first = (settle) => (value) => {
        clearTimeout(late);
        settle(value);
      };
      createInterface(server.stdout).once("line", first(resolve));
      server.once("error", first((error) => {
        const remedy = error.code === "ENOENT" ? "install it, or pass its path: Trefoil.start({ program })" : "";
        fail(`cannot start ${program}: ${error.message}; ${remedy}`);
      }));
      // After the last line of its log.
      server.once("close", first((code, signal) => fail(`${program} ended with ${signal ?? code} before it was ready`)));
    });
  }

  // An access token of the client.
  async token(scope = this.scope) {
    const basic = Buffer.from(`${CLIENT}:${this.secret}`).toString("base64");
    const answer = await fetch(`${this.baseUrl}/oauth2/token`, {
      method: "POST",
      headers: { authorization: `Basic ${basic}` },
      body: new URLSearchParams({ grant_type: "client_credentials", scope }),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return (await answer.json()).access_token;
  }

  // A resource or a search, such as `Patient/p1` or `Patient?family=Marsh`.
  get(path) {
    return this.request("GET", path);
  }

  // Stores a resource under its id, or under a new one, and returns what is stored.
  put(resource) {
    const { resourceType, id } = resource;
    const [method, path] = id ? ["PUT", `${resourceType}/${id}`] : ["POST", resourceType];
    return this.request(method, path, resource);
  }

  async request(method, path, resource) {
    const headers = { authorization: `Bearer ${await this.token()}`, "content-type": "application/fhir+json" };
    const body = resource && JSON.stringify(resource);
    const answer = await fetch(`${this.fhirBase}/${path}`, { method, headers, body });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  // A new server at the same address, with the demo project only.
  async reset() {
    await this.stop();
    await this.launch(["--listen", `127.0.0.1:${new URL(this.baseUrl).port}`]);
  }

  // Stops the server. Nothing of it is left.
  async stop() {
    if (!this.process) throw new Error("only the process that started the server can stop it");
    // Node waits for the end of the server and of its log.
    for (const part of this.parts) part.ref();
    this.process.kill();
    await this.ended;
  }

  [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
    return this.stop();
  }
}

exports.Trefoil = Trefoil;
