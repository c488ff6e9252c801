// Starts servers at the same time, as the workers of a large test run do, and uses each of them.

import assert from "node:assert";
import { existsSync } from "node:fs";

const [helper, program, count] = process.argv.slice(2);
const { Trefoil } = await import(helper);
const servers = await Promise.all(Array.from({ length: Number(count) }, () => Trefoil.start({ program })));
assert.equal(new Set(servers.map((server) => server.baseUrl)).size, servers.length);
await Promise.all(servers.map((server, id) => server.put({ resourceType: "Patient", id: `only-${id}` })));
await Promise.all(servers.map(async (server, id) => {
  assert.equal((await server.get(`Patient/only-${id}`)).id, `only-${id}`);
  await assert.rejects(server.get(`Patient/only-${(id + 1) % servers.length}`), /404/);
}));
await Promise.all(servers.map((server) => server.stop()));
assert(servers.every((server) => !existsSync(server.data)));
console.log(`${servers.length} servers, all good`);
