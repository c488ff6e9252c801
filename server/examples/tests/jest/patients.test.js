const { Trefoil } = require("trefoil-server");

const server = Trefoil.attach(JSON.parse(process.env.TREFOIL));

test("a stored patient is found by the name", async () => {
  await server.put({ resourceType: "Patient", id: "jest", name: [{ family: "Quillfeather" }] });
  expect((await server.get("Patient?family=Quillfeather")).total).toBe(1);
});
