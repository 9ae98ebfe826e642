// A real OpenID provider (oidc-provider) on the loopback address, for tests and the demo.
//
//   node provider.mjs CERTIFICATE KEY
//
// It prints its issuer once it listens. Every login is an account: alice@acme is subject alice of org
// acme, in the group dev. POST /rotate replaces its keys.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

const [certificate, key] = process.argv.slice(2);
const redirect = 'https://127.0.0.1:1/callback';

async function keys() {
  const all = [];
  for (const alg of ['RS256', 'ES256']) {
    const { privateKey } = await generateKeyPair(alg, { extractable: true });
    all.push({ ...(await exportJWK(privateKey)), alg, use: 'sig', kid: `${alg}-${Date.now()}-${Math.random()}` });
  }
  return { keys: all };
}

const client = (client_id, id_token_signed_response_alg) => ({
  client_id, client_secret: 'secret', redirect_uris: [redirect], id_token_signed_response_alg,
});

// A command line: no secret, any port of the loopback address (RFC 8252).
const cli = {
  client_id: 'kubectl', application_type: 'native', token_endpoint_auth_method: 'none', redirect_uris: ['http://127.0.0.1/callback'],
  grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'],
};

async function provider(issuer) {
  const p = new Provider(issuer, {
    clients: [client('rs256', 'RS256'), client('es256', 'ES256'), cli],
    scopes: ['openid', 'offline_access'],
    jwks: await keys(),
    claims: { openid: ['sub', 'org', 'groups'] },
    conformIdTokenClaims: false,
    pkce: { required: (_, client) => client.clientId === 'kubectl' },
    features: { deviceFlow: { enabled: true } },
    issueRefreshToken: async () => true,
    cookies: { keys: ['a key of a test'] },
    ttl: { IdToken: 3600, Interaction: 600, Session: 600, Grant: 600, AccessToken: 600 },
    findAccount: (_, id) => {
      const [sub, org] = id.split('@');
      return { accountId: id, claims: () => ({ sub, org, groups: ['dev'] }) };
    },
  });
  return p.callback();
}

let handle;
const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, async (req, res) => {
  if (req.method === 'POST' && req.url === '/rotate') {
    handle = await provider(issuer());
    res.writeHead(204).end();
    return;
  }
  handle(req, res);
});
const issuer = () => `https://127.0.0.1:${server.address().port}`;
server.listen(0, '127.0.0.1', async () => {
  handle = await provider(issuer());
  console.log(`issuer ${issuer()}`);
});
// The provider ends with whoever started it.
process.stdin.on('end', () => process.exit(0)).resume();
