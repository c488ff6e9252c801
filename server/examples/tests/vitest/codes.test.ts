import { Trefoil } from "trefoil-server";
import { expect, inject, test } from "vitest";

const server = Trefoil.attach(inject("trefoil"));

test("a rollator is a walking aid", async () => {
  const question = new URLSearchParams({
    system: "https://trefoil.example/fhir/CodeSystem/care-aids",
    codeA: "aid",
    codeB: "indoor-rollator",
  });
  const answer = await server.get(`CodeSystem/$subsumes?${question}`);
  expect(answer.parameter).toEqual([{ name: "outcome", valueCode: "subsumes" }]);
});
