// An OpenID provider of another maker (oidc-provider) with one user, whose claims a request to /claims sets. The user is always
// signed in. It prints its issuer when it is ready. Arguments: the redirect URI of its only client, and where the claims are
// (id-token or userinfo).
import { Provider } from 'oidc-provider';
import http from 'node:http';

let claims = {};
const names = ['name', 'given_name', 'groups', 'roles', 'realm_access', '_claim_names', '_claim_sources', 'hasgroups', 'fhirUser'];
const server = http.createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'trefoil',
      client_secret: 'only-for-this-test',
      redirect_uris: [process.argv[2]],
      grant_types: ['authorization_code'],
      response_types: ['code'],
    }],
    claims: { openid: ['sub'], profile: names },
    conformIdTokenClaims: process.argv[3] === 'userinfo',
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...claims }) }),
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({
        clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId,
      });
      grant.addOIDCScope('openid profile email');
      await grant.save();
      return grant;
    },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    cookies: { keys: ['only-for-this-test'] },
  });
  const callback = provider.callback();
  server.on('request', async (request, response) => {
    if (request.url === '/claims') {
      const parts = [];
      for await (const part of request) parts.push(part);
      claims = JSON.parse(Buffer.concat(parts).toString());
      response.end();
    } else if (request.url.startsWith('/interaction/')) {
      await provider.interactionFinished(request, response, { login: { accountId: 'ann' } });
    } else {
      callback(request, response);
    }
  });
  console.log(issuer);
});
