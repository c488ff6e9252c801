// One server for all tests. Its addresses and secrets are in a variable, which the workers inherit.
import { Trefoil } from "trefoil-server";

export default async function () {
  const server = await Trefoil.start();
  process.env.TREFOIL = JSON.stringify(server.facts);
  return () => server.stop();
}
