// A file of tests that needs an empty server has its own.
const { Trefoil } = require("trefoil-server");

let server;
beforeAll(async () => (server = await Trefoil.start({ scope: "system/Patient.cruds" })));
afterAll(() => server.stop());

test("a reset forgets what was stored", async () => {
  await server.put({ resourceType: "Patient", id: "p1" });
  await server.reset();
  await expect(server.get("Patient/p1")).rejects.toThrow("404");
});

test("the client has only its scopes", async () => {
  await expect(server.get("Observation")).rejects.toThrow("403");
});
