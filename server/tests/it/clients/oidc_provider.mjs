// An OpenID provider of another maker (oidc-provider), which accepts every user and asks for consent. It prints its issuer
// when it is ready.
import { Provider } from 'oidc-provider';
import http from 'node:http';

const server = http.createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'native',
      application_type: 'native',
      redirect_uris: ['http://localhost/callback', 'http://127.0.0.1/callback', 'http://localhost/signed/in'],
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
      response_types: ['code'],
    }],
    scopes: ['openid', 'offline_access', 'profile', 'email'],
    claims: { openid: ['sub'], email: ['email'], profile: ['name'] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: 'Ada Example', email: `${id}@t.example` }) }),
    issueRefreshToken: () => true,
    features: { deviceFlow: { enabled: true }, revocation: { enabled: true }, devInteractions: { enabled: true } },
    cookies: { keys: ['only-for-this-test'] },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
