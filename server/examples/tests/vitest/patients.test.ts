import { Trefoil } from "trefoil-server";
import { expect, inject, test } from "vitest";

const server = Trefoil.attach(inject("trefoil"));

test("a stored patient is found by the name", async () => {
  await server.put({ resourceType: "Patient", id: "vitest", name: [{ family: "Quillfeather" }] });
  expect((await server.get("Patient?family=Quillfeather")).total).toBe(1);
});
