// node-oidc-provider with the clients of the profile oidc-provider.toml. It accepts every user name and password, and
// asks for consent. It prints its issuer when it is ready. Its folder node_modules is that of server/tests/it/clients.
// With the argument `second` it has another configuration, that of the profile oidc-provider-second.toml: keys of two
// algorithms, secrets in the form, code challenges only where a client sends one, no rotation of refresh tokens, and none
// of the optional features.
import { generateKeyPairSync } from 'node:crypto';
import { createRequire } from 'node:module';
import http from 'node:http';
import path from 'node:path';

const modules = path.join(import.meta.dirname, '../../../server/tests/it/clients/package.json');
const { Provider } = await import(createRequire(modules).resolve('oidc-provider'));

const secret = 'a-secret-only-for-tests-0123456789';
const all = ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'];
const app = (client_id, redirect_uris, more = {}) => ({
  client_id,
  redirect_uris,
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
  ...more,
});

const isSecond = process.argv[2] === 'second';
const method = isSecond ? 'client_secret_post' : 'client_secret_basic';
const second = {
  pkce: { required: () => false },
  rotateRefreshToken: false,
  jwks: {
    keys: ['EC', 'RSA'].map((kty) => ({
      ...generateKeyPairSync(kty.toLowerCase(), { namedCurve: 'P-256', modulusLength: 2048 }).privateKey.export({
        format: 'jwk',
      }),
      use: 'sig',
      kid: kty,
      alg: kty === 'EC' ? 'ES256' : 'RS256',
    })),
  },
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  features: {
    devInteractions: { enabled: true },
    revocation: { enabled: true },
  },
};

const port = isSecond ? 0 : Number(process.argv[2] ?? 0);
const server = http.createServer();
server.listen(port, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      app('public', ['https://diary.app.example/callback', 'https://diary.app.example/other'], {
        grant_types: ['authorization_code'],
        post_logout_redirect_uris: ['https://diary.app.example/bye'],
      }),
      app('native', ['http://localhost/callback'], { application_type: 'native' }),
      app('confidential', ['https://office.app.example/callback'], {
        client_secret: secret,
        token_endpoint_auth_method: method,
      }),
      app('implicit', ['https://widget.app.example/callback'], {
        grant_types: ['implicit'],
        response_types: ['id_token', 'id_token token'],
      }),
      app('bound', ['https://safe.app.example/callback'], { dpop_bound_access_tokens: true }),
      app('pushed', ['https://vault.app.example/callback'], {
        client_secret: secret,
        token_endpoint_auth_method: method,
        require_pushed_authorization_requests: true,
      }),
      app('device', [], { grant_types: all, response_types: [], application_type: 'native' }),
      app('resource-server', [], {
        client_secret: secret,
        token_endpoint_auth_method: method,
        grant_types: ['client_credentials'],
        response_types: [],
      }),
    ],
    responseTypes: ['code', 'id_token', 'id_token token', 'code id_token', 'none'],
    scopes: ['openid', 'offline_access', 'profile', 'email'],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'given_name', 'family_name'] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, name: 'Ada Example', given_name: 'Ada', family_name: 'Example', email: `${id}@t.example` }),
    }),
    features: {
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      devInteractions: { enabled: true },
      dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 7), requireNonce: () => false },
      introspection: { enabled: true },
      pushedAuthorizationRequests: { enabled: true },
      revocation: { enabled: true },
    },
    cookies: { keys: ['only-for-this-test'] },
    ...(isSecond ? second : {}),
  });
  provider.on('server_error', (_, error) => console.error(error));
  server.on('request', provider.callback());
  console.log(issuer);
});
