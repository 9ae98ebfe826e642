// What programs in JavaScript do with Kubernetes' own client: whole objects are read, changed, replaced; lists are paged; watched.
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const apps = config.makeApiClient(k8s.AppsV1Api);
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'acme--web';

async function step(name, run) {
  try {
    const result = await run();
    console.log(`${name}: ok${typeof result === 'string' ? ' ' + result : ''}`);
  } catch (err) {
    console.log(`${name}: ${err.code ?? err.message}`);
  }
}

const deployment = (image) => ({
  apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'js' },
  spec: {
    selector: { matchLabels: { app: 'js' } },
    template: { metadata: { labels: { app: 'js' } }, spec: { containers: [{ name: 'c', image }] } },
  },
});

await step('create', () => apps.createNamespacedDeployment({ namespace, body: deployment('registry.example.com/js:1') }));
await step('create again', () => apps.createNamespacedDeployment({ namespace, body: deployment('registry.example.com/js:1') }));
await step('read and replace', async () => {
  for (;;) {
    const is = await apps.readNamespacedDeployment({ namespace, name: 'js' });
    is.spec.template.spec.containers[0].image = 'registry.example.com/js:2';
    try {
      await apps.replaceNamespacedDeployment({ namespace, name: 'js', body: is });
      return;
    } catch (err) {
      if (err.code !== 409) throw err;
    }
  }
});
await step('replace with what was created', () => apps.replaceNamespacedDeployment({ namespace, name: 'js', body: deployment('registry.example.com/js:3') }));
await step('replace with an old version', async () => {
  const body = deployment('registry.example.com/js:4');
  body.metadata.resourceVersion = '1';
  await apps.replaceNamespacedDeployment({ namespace, name: 'js', body });
});
await step('what stands there', async () => (await apps.readNamespacedDeployment({ namespace, name: 'js' })).spec.template.spec.containers[0].image);
for (let i = 0; i < 5; i++) {
  await step(`create a ConfigMap ${i}`, () => core.createNamespacedConfigMap({ namespace, body: { metadata: { name: `js-${i}` } } }));
}
await step('list by pages', async () => {
  let found = 0, _continue;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, limit: 2, _continue });
    found += page.items.filter((c) => c.metadata.name.startsWith('js-')).length;
    _continue = page.metadata._continue;
  } while (_continue);
  return String(found);
});
await step('list everywhere', async () => {
  const all = await core.listConfigMapForAllNamespaces({});
  return String(all.items.filter((c) => c.metadata.namespace === namespace && c.metadata.name.startsWith('js-')).length);
});
await step('watch', () => new Promise((resolve, reject) => {
  let request;
  new k8s.Watch(config).watch(`/api/v1/namespaces/${namespace}/configmaps`, {}, (type, obj) => {
    if (obj.metadata.name === 'js-4') {
      request.abort();
      resolve(type);
    }
  }, (err) => { if (err && err.name !== 'AbortError') reject(err); }).then((r) => { request = r; });
}));
await step('read what is not there', () => core.readNamespacedConfigMap({ namespace, name: 'none' }));
await step('read where nothing is', () => core.readNamespacedConfigMap({ namespace: 'acme--none', name: 'none' }));
await step('delete', () => apps.deleteNamespacedDeployment({ namespace, name: 'js' }));
