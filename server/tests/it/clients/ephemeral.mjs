// Uses the helper of `packages/npm` as the tests of an app do.

import assert from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [helper, program, rounds] = process.argv.slice(2);
const { Trefoil } = await import(helper);
const ready = [];
const tokens = [];
for (let round = 0; round < Number(rounds); round += 1) {
  const started = performance.now();
  const server = await Trefoil.start({ program });
  ready.push(performance.now() - started);
  assert(await server.token());
  tokens.push(performance.now() - started);
  await server.stop();
}
const server = await Trefoil.start({ program });
assert.equal((await server.get("Patient/pat-01")).id, "pat-01");
const stored = await server.put({ resourceType: "Patient", id: "new", active: true });
assert.equal(stored.meta.versionId, "1");
assert((await server.put({ resourceType: "Patient" })).id);

// Another process uses the server by its facts, and cannot stop it.
const attached = Trefoil.attach(JSON.parse(JSON.stringify(server.facts)));
assert.equal((await attached.get("Patient/new")).active, true);
await assert.rejects(attached.stop(), /only the process that started/);

const { baseUrl, data } = server;
await server.reset();
assert(server.baseUrl === baseUrl && !existsSync(data));
await assert.rejects(server.get("Patient/new"), /GET Patient\/new: 404/);
assert(server.demo.user.password);
await server.stop();
await server.stop();

// A server that cannot start is an error with its last words.
const fails = (program, expected) => assert.rejects(Trefoil.start({ program }), expected);
await fails("/bin/false", /ended with 1 before it was ready/);
await fails("/nowhere/trefoil", /cannot start \/nowhere\/trefoil: .*install it/s);
const broken = join(mkdtempSync(join(tmpdir(), "broken-")), "trefoil");
writeFileSync(broken, "#!/bin/sh\necho starting\necho 'no room' >&2\nexit 3\n", { mode: 0o700 });
await fails(broken, /Unexpected token|not valid JSON/);
writeFileSync(broken, "#!/bin/sh\necho 'no room' >&2\nexit 3\n", { mode: 0o700 });
await fails(broken, /ended with 3 before it was ready\nno room/);

// A process that forgets to stop its server ends, and so does the server; also if it is killed.
const forgets = `const { Trefoil } = await import(${JSON.stringify(helper)});
const server = await Trefoil.start({ program: ${JSON.stringify(program)} });
console.log(server.data);`;
const gone = async (child, signal) => {
  const [data] = await once(createInterface(child.stdout), "line");
  if (signal) child.kill(signal);
  await new Promise((resolve) => child.once("exit", resolve));
  for (let tries = 0; existsSync(data); tries += 1) {
    assert(tries < 200, `${data} is left`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const run = (more) =>
  spawn(process.execPath, ["--input-type=module", "-e", forgets + more], { stdio: ["ignore", "pipe", "inherit"] });
await gone(run(""));
await gone(run("await new Promise((resolve) => setTimeout(resolve, 60_000));"), "SIGKILL");
const median = (all) => (all.sort((a, b) => a - b)[Math.floor(all.length / 2)] / 1000).toFixed(3);
console.log(`client ready ${median(ready)} s, first token ${median(tokens)} s, all good`);
