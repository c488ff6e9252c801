// oauth2-mock-server, which accepts every client and signs in one user without a page. It prints its issuer when it is
// ready. Its folder node_modules is that of server/tests/it/clients.
import { createRequire } from 'node:module';
import path from 'node:path';

const modules = path.join(import.meta.dirname, '../../../server/tests/it/clients/package.json');
const { OAuth2Server } = await import(createRequire(modules).resolve('oauth2-mock-server'));

const server = new OAuth2Server();
await server.issuer.keys.generate('RS256');
await server.start(Number(process.argv[2] ?? 0), 'localhost');
console.log(server.issuer.url);
