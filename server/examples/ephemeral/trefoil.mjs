// A Trefoil server for the tests of an app: it is ready at once, and forgets everything when it stops.
//
//   const server = await Trefoil.start();
//   const patients = await server.get("Patient");
//   await server.stop();
//
// It needs the program `trefoil` and nothing but Node.

import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { once } from "node:events";
import { promisify } from "node:util";

const CLIENT = "tests";

export class Trefoil {
  // Starts a server on a free port, with the demo project and a client of its own.
  static async start({ program = "trefoil", scope = "system/*.cruds" } = {}) {
    const server = new Trefoil();
    Object.assign(server, { program, scope });
    await server.launch();
    return server;
  }

  async launch() {
    const stdio = ["ignore", "pipe", "ignore"];
    this.process = spawn(this.program, ["serve", "--ephemeral", "--insecure-http"], { stdio });
    const [line] = await once(createInterface(this.process.stdout), "line");
    const facts = JSON.parse(line);
    // Users and clients of the demo project, with passwords, secrets and keys, are in `demo`.
    Object.assign(this, { baseUrl: facts.base_url, fhirBase: facts.fhir_base, data: facts.data, demo: facts.demo });
    const add = ["client", "add", CLIENT, "--json", "--data", this.data, "--scope", this.scope];
    add.push("--auth-method", "client_secret_basic", "--grant-type", "client_credentials");
    const { stdout } = await promisify(execFile)(this.program, add);
    const records = stdout.split("\n").filter((record) => record.startsWith("{")).map((record) => JSON.parse(record));
    this.secret = records.find((record) => record.client_secret).client_secret;
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
    const ended = once(this.process, "exit");
    this.process.kill();
    await ended;
  }
}
