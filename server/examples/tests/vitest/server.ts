// One server for all tests. They get its addresses and secrets by `inject("trefoil")`.
import { type Facts, Trefoil } from "trefoil-server";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    trefoil: Facts;
  }
}

export default async function (project: TestProject) {
  const server = await Trefoil.start();
  project.provide("trefoil", server.facts);
  return () => server.stop();
}
