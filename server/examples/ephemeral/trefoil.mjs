// A Trefoil server for the tests of an app: it is ready at once, and forgets everything when it stops.
//
//   const server = await Trefoil.start();
//   const patients = await server.get("Patient");
//   await server.stop();
//
// It needs the program `trefoil` and nothing but Node. The server ends with the process that started it, however that
// ends, and does not keep it from ending.

import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const CLIENT = "tests";
// Milliseconds until a server must be ready, and the lines of its log that an error shows.
const PATIENCE = 60_000;
const SHOWN = 20;

export class Trefoil {
  // Starts a server on a free port, with the demo project and a client of its own.
  static async start({ program = "trefoil", scope = "system/*.cruds" } = {}) {
    const server = new Trefoil();
    Object.assign(server, { program, scope });
    await server.launch();
    return server;
  }

  async launch() {
    const facts = JSON.parse(await this.announced());
    // Users and clients of the demo project, with passwords, secrets and keys, are in `demo`.
    Object.assign(this, { baseUrl: facts.base_url, fhirBase: facts.fhir_base, data: facts.data, demo: facts.demo });
    const add = ["client", "add", CLIENT, "--json", "--data", this.data, "--scope", this.scope];
    add.push("--auth-method", "client_secret_basic", "--grant-type", "client_credentials");
    const { stdout } = await promisify(execFile)(this.program, add);
    const records = stdout.split("\n").filter((record) => record.startsWith("{")).map((record) => JSON.parse(record));
    this.secret = records.find((record) => record.client_secret).client_secret;
  }

  // The line that the server prints when it is ready.
  announced() {
    // The server ends when this pipe to its standard input closes.
    this.process = spawn(this.program, ["serve", "--ephemeral", "--insecure-http"], { stdio: "pipe" });
    const { process: server, program } = this;
    this.ended = new Promise((resolve) => server.once("close", resolve));
    const log = [];
    createInterface(server.stderr).on("line", (line) => log.push(line) > SHOWN && log.shift());
    // A server that is not stopped does not keep the tests from ending.
    for (const part of [server, server.stdin, server.stdout, server.stderr]) part.unref();
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
  async get(path) {
    const headers = { authorization: `Bearer ${await this.token()}` };
    const answer = await fetch(`${this.fhirBase}/${path}`, { headers });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  // A new server, with the demo project only. It has another address.
  async reset() {
    await this.stop();
    await this.launch();
  }

  // Stops the server. Nothing of it is left.
  async stop() {
    this.process.ref();
    this.process.kill();
    await this.ended;
  }

  [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
    return this.stop();
  }
}
