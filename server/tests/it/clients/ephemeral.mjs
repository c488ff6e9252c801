// Uses the helper of `examples/ephemeral` as the tests of an app do.

import assert from "node:assert";
import { existsSync } from "node:fs";
import { join } from "node:path";

const [folder, program, rounds] = process.argv.slice(2);
const { Trefoil } = await import(join(folder, "trefoil.mjs"));
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
const { baseUrl, data } = server;
await server.reset();
assert(server.baseUrl !== baseUrl && !existsSync(data));
assert(server.demo.user.password);
await server.stop();
const median = (all) => (all.sort((a, b) => a - b)[Math.floor(all.length / 2)] / 1000).toFixed(3);
console.log(`client ready ${median(ready)} s, first token ${median(tokens)} s, all good`);
