// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/provision"
	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	resource    = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	definitions = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
	peter = v1alpha1.Subject{Kind: "User", Name: "peter"}
	mary  = v1alpha1.Subject{Kind: "User", Name: "mary"}
)

// fixture is a fake cluster in virtual time, and an engine that can be started and stopped.
type fixture struct {
	t            *testing.T
	kube         *fake.Clientset
	client       kubernetes.Interface // the typed client of the engine
	dynamic      *dynamicfake.FakeDynamicClient
	objectClient dynamic.Interface // the dynamic client of the engine, if it is not the field dynamic
	metadata     *metadatafake.FakeMetadataClient
	reading      metadata.Interface // the metadata client of the engine
	uids         int
	err          error
	stop         func()
	owners       authz.Owners // only its reserved names are used
	undefined    atomic.Bool  // whether the kind Tenant is not defined
	derives      atomic.Bool  // whether the server derives rights from Tenants
	webhook      bool         // simulates the webhook service, in which DerivesRights is nil
	unseen       string       // [Options].Unseen of the engine
	missing      missingDefinitions
}

// prepend adds a reaction to a client that other goroutines use.
func prepend(client *clienttesting.Fake, verb, resource string, react clienttesting.ReactionFunc) {
	client.Lock()
	defer client.Unlock()
	client.PrependReactor(verb, resource, react)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	definition := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"},
	}
	definition.SetName("tenants.kubetenant.dev")
	w := &fixture{
		t:    t,
		kube: fake.NewClientset(),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				resource: "TenantList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):     "RetiredTenantList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas):       "TenantQuotaList",
				publicationResource: "PublicationList",
				secrets:             "SecretList",
				rbacv1.SchemeGroupVersion.WithResource("roles"):        "RoleList",
				rbacv1.SchemeGroupVersion.WithResource("rolebindings"): "RoleBindingList",
				definitions: "CustomResourceDefinitionList",
				corev1.SchemeGroupVersion.WithResource("configmaps"):            "ConfigMapList",
				corev1.SchemeGroupVersion.WithResource("limitranges"):           "LimitRangeList",
				corev1.SchemeGroupVersion.WithResource("resourcequotas"):        "ResourceQuotaList",
				networkingv1.SchemeGroupVersion.WithResource("networkpolicies"): "NetworkPolicyList",
			}, definition),
	}
	// The server also rejects changes of roleRef.
	prepend(&w.kube.Fake, "update", "rolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		is, _ := a.(clienttesting.UpdateAction).GetObject().(*rbacv1.RoleBinding)
		was, err := w.kube.Tracker().Get(a.GetResource(), a.GetNamespace(), is.Name)
		if before, stored := was.(*rbacv1.RoleBinding); err == nil && stored && before.RoleRef != is.RoleRef {
			return true, nil, errors.New("cannot change roleRef")
		}
		return false, nil, nil
	})
	w.client = w.kube
	w.followSources()
	w.reading = w.metadata
	w.start()
	return w
}

// start starts an engine, as a new leader does.
func (w *fixture) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	store, err := tenants.New(w.dynamic, func(schema.GroupResource) (bool, bool) { return !w.undefined.Load(), true })
	if err != nil {
		w.t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(w.kube, 0)
	spaces := factory.Core().V1().Namespaces().Informer()
	owned, err := tenantquota.NewNamespaces(spaces)
	if err != nil {
		w.t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() {
		o := provision.Options{
			Client:        w.client,
			Dynamic:       cmp.Or[dynamic.Interface](w.objectClient, w.dynamic),
			Metadata:      w.reading,
			Unseen:        w.unseen,
			Tenants:       store,
			Namespaces:    spaces,
			Owned:         owned.OwnedBy,
			OwnerOf:       w.owners.OwnerOf,
			DerivesRights: w.derives.Load,
			Definitions:   &w.missing,
		}
		if w.webhook {
			o.DerivesRights = nil
		}
		w.err = provision.New(o).Run(ctx)
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
	w.t.Cleanup(func() { w.stop() })
	w.settle()
}

func (w *fixture) settle() {
	time.Sleep(3 * time.Second) // in the fake time of synctest
	synctest.Wait()
}

func (w *fixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// namespace creates a namespace of a tenant.
func (w *fixture) namespace(name, of string, annotations map[string]string) {
	w.t.Helper()
	w.uids++
	_, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		UID:         types.UID(fmt.Sprint("u", w.uids)),
		Labels:      map[string]string{tenant.Label: of},
		Annotations: annotations,
	}}, metav1.CreateOptions{})
	w.must(err)
}

// tenant calls change with the spec of acme's Tenant, and writes the result.
func (w *fixture) tenant(change func(*v1alpha1.TenantSpec)) {
	w.t.Helper()
	objects := w.dynamic.Resource(resource)
	u, err := objects.Get(w.t.Context(), "acme", metav1.GetOptions{})
	t := &v1alpha1.Tenant{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenant},
		Spec:     v1alpha1.TenantSpec{ID: "acme"},
	}
	t.Name, t.UID, t.CreationTimestamp = "acme", "t1", metav1.Now()
	exists := err == nil
	if exists {
		t, err = typed.Decode[v1alpha1.Tenant](u)
		w.must(err)
	}
	change(&t.Spec)
	t.Generation++
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	w.must(err)
	if exists {
		_, err = objects.Update(w.t.Context(), &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{})
	} else {
		_, err = objects.Create(w.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	}
	w.must(err)
	w.settle()
}

// bindings returns the RoleBindings in a namespace in the form "name role: subjects".
func (w *fixture) bindings(namespace string) (all []string) {
	w.t.Helper()
	list, err := w.kube.RbacV1().RoleBindings(namespace).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, b := range list.Items {
		text := b.Name + " " + b.RoleRef.Name + ":"
		for _, s := range b.Subjects {
			text += " " + s.Name
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func (w *fixture) expect(what, namespace string, want ...string) {
	w.t.Helper()
	if got := w.bindings(namespace); !slices.Equal(got, want) {
		w.t.Errorf("%s: %s has %q, want %q", what, namespace, got, want)
	}
}

func (w *fixture) prepared(namespace string) string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), namespace, metav1.GetOptions{})
	w.must(err)
	return ns.Annotations[tenant.PreparedAnnotation]
}

// status returns the reason of the condition Prepared of acme's Tenant, and the numbers of all,
// prepared and failed namespaces.
func (w *fixture) status() string {
	w.t.Helper()
	u, err := w.dynamic.Resource(resource).Get(w.t.Context(), "acme", metav1.GetOptions{})
	w.must(err)
	t, err := typed.Decode[v1alpha1.Tenant](u)
	w.must(err)
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPrepared)
	if c == nil {
		return "nothing"
	}
	n := t.Status.Namespaces
	return fmt.Sprintf("%s %d/%d/%d of generation %d",
		c.Reason, n.Total, n.Prepared, n.Failed, t.Status.ObservedGeneration)
}

// writes returns the number of writes since the last call.
func (w *fixture) writes() (n int) {
	for _, actions := range [][]clienttesting.Action{w.kube.Actions(), w.dynamic.Actions()} {
		for _, a := range actions {
			if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
				n++
			}
		}
	}
	w.kube.ClearActions()
	w.dynamic.ClearActions()
	return n
}

// TestBindingsFollowTenant checks that the bindings that a Tenant specifies exist in each
// namespace, including namespaces that are created later. They are deleted if the Tenant no
// longer specifies them or is deleted.
func TestBindingsFollowTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.namespace("kube-system", "", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = []v1alpha1.Subject{peter, mary, peter}
			s.Bindings = []v1alpha1.TenantBinding{
				{
					ClusterRole: "view",
					Subjects: []v1alpha1.Subject{
						{Kind: "Group", Name: "dev"}, {Kind: "ServiceAccount", Namespace: "acme--web", Name: "robot"},
					},
				},
			}
		})
		both := []string{"kubetenant:admins admin: peter mary", "kubetenant:binding:view view: dev robot"}
		w.expect("at first", "acme--web", both...)
		w.expect("at first", "globex--web")
		w.expect("at first", "kube-system")
		w.namespace("acme--db", "acme", nil)
		w.settle()
		w.expect("later namespace", "acme--db", both...)
		if a, b := w.prepared("acme--web"), w.prepared("acme--db"); a == "" || b == "" || a == b {
			t.Errorf("prepared: %q and %q", a, b)
		}
		if got, want := w.status(), "Prepared 2/2/0 of generation 1"; got != want {
			t.Errorf("the status: %s, want %s", got, want)
		}
		w.writes()
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins, s.Bindings = []v1alpha1.Subject{mary}, nil })
		w.expect("afterwards", "acme--web", "kubetenant:admins admin: mary")
		w.expect("afterwards", "acme--db", "kubetenant:admins admin: mary")
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = nil })
		w.expect("without admins", "acme--web")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("prepared without content: %s", got)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{mary} })
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.expect("without a Tenant", "acme--web")
	})
}

// TestLeaders checks that a new leader writes only the changes that were made while no leader
// ran.
func TestLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		for i := range 20 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter, mary} })
		w.stop()
		w.writes()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.stop()
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{mary} })
		w.expect("without a leader", "acme--7", "kubetenant:admins admin: peter mary")
		w.start()
		w.expect("with the next leader", "acme--7", "kubetenant:admins admin: mary")
	})
}

// TestDrift checks that bindings that were changed or deleted without admission are restored, and
// that additional bindings with the managed label are deleted.
func TestDrift(t *testing.T) {
	changes := map[string]func(w *fixture) error{
		"deleted": func(w *fixture) error {
			return w.kube.RbacV1().RoleBindings("acme--web").Delete(w.t.Context(), "kubetenant:admins", metav1.DeleteOptions{})
		},
		"additional managed binding": func(w *fixture) error {
			_, err := w.kube.RbacV1().RoleBindings("acme--web").Create(w.t.Context(),
				&rbacv1.RoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{tenant.ManagedLabel: "tenant"}},
				}, metav1.CreateOptions{})
			return err
		},
	}
	for name, change := range map[string]func(*rbacv1.RoleBinding){
		"another subject": func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "x"})
		},
		"no subjects":      func(b *rbacv1.RoleBinding) { b.Subjects = nil },
		"another role":     func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "cluster-admin" },
		"additional label": func(b *rbacv1.RoleBinding) { b.Labels["kubetenant.dev/x"] = "y" },
		"no tenant label":  func(b *rbacv1.RoleBinding) { delete(b.Labels, tenant.Label) },
		"expiration": func(b *rbacv1.RoleBinding) {
			b.Annotations = map[string]string{tenant.ExpiresAnnotation: "2020-01-01T00:00:00Z"}
		},
		"owner reference": func(b *rbacv1.RoleBinding) { b.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} },
		"finalizer":       func(b *rbacv1.RoleBinding) { b.Finalizers = []string{"x/y"} },
	} {
		changes[name] = func(w *fixture) error {
			bindings := w.kube.RbacV1().RoleBindings("acme--web")
			b, err := bindings.Get(w.t.Context(), "kubetenant:admins", metav1.GetOptions{})
			w.must(err)
			change(b)
			return w.kube.Tracker().Update(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), b, "acme--web")
		}
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", nil)
				w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
				w.must(change(w))
				time.Sleep(11 * time.Minute)
				w.settle()
				w.expect("restored", "acme--web", "kubetenant:admins admin: peter")
				b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(t.Context(), "kubetenant:admins", metav1.GetOptions{})
				w.must(err)
				if len(b.Annotations)+len(b.OwnerReferences)+len(b.Finalizers) > 0 || len(b.Labels) != 2 {
					t.Errorf("unexpected metadata: %+v", b.ObjectMeta)
				}
				if got, want := w.status(), "Prepared 1/1/0 of generation 1"; got != want {
					t.Errorf("the status: %s, want %s", got, want)
				}
			})
		})
	}
}

// slow is a client that creates RoleBindings slowly, and whose patches of Namespaces return only
// after the informers have observed the change.
type slow struct{ kubernetes.Interface }

func (s slow) RbacV1() rbacclient.RbacV1Interface { return slowBindings{s.Interface.RbacV1()} }

func (s slow) CoreV1() coreclient.CoreV1Interface { return slowNamespaces{s.Interface.CoreV1()} }

type slowBindings struct{ rbacclient.RbacV1Interface }

func (s slowBindings) RoleBindings(namespace string) rbacclient.RoleBindingInterface {
	return slowCreates{s.RbacV1Interface.RoleBindings(namespace)}
}

type slowCreates struct {
	rbacclient.RoleBindingInterface
}

func (s slowCreates) Create(
	ctx context.Context, b *rbacv1.RoleBinding, o metav1.CreateOptions,
) (*rbacv1.RoleBinding, error) {
	time.Sleep(100 * time.Millisecond)
	return s.RoleBindingInterface.Create(ctx, b, o)
}

type slowNamespaces struct{ coreclient.CoreV1Interface }

func (s slowNamespaces) Namespaces() coreclient.NamespaceInterface {
	return slowPatches{s.CoreV1Interface.Namespaces()}
}

type slowPatches struct{ coreclient.NamespaceInterface }

func (s slowPatches) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string,
) (*corev1.Namespace, error) {
	defer time.Sleep(10 * time.Millisecond)
	return s.NamespaceInterface.Patch(ctx, name, kind, data, o, sub...)
}

// TestConcurrentChange checks that a right that a Tenant loses while a namespace is being prepared
// does not remain in the namespace.
func TestConcurrentChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.stop()
		w.client = slow{w.kube}
		w.start()
		gives := func(role string, to v1alpha1.Subject) func(*v1alpha1.TenantSpec) {
			return func(s *v1alpha1.TenantSpec) {
				s.Bindings = []v1alpha1.TenantBinding{{ClusterRole: role, Subjects: []v1alpha1.Subject{to}}}
			}
		}
		w.tenant(gives("view", mary))
		w.namespace("acme--web", "acme", nil)
		time.Sleep(50 * time.Millisecond) // the engine is creating the binding
		w.tenant(gives("edit", peter))
		w.expect("afterwards", "acme--web", "kubetenant:binding:edit edit: peter")
	})
}

// TestForgedAnnotation checks that a namespace with an annotation that was copied from another
// namespace is not treated as prepared.
func TestForgedAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		w.namespace("acme--restored", "acme", map[string]string{tenant.PreparedAnnotation: w.prepared("acme--web")})
		w.settle()
		w.expect("restored", "acme--restored", "kubetenant:admins admin: peter")
	})
}

// TestRefusedSubjects checks that subjects that admission would refuse are not bound, and that all
// other subjects are bound.
func TestRefusedSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = []v1alpha1.Subject{
				{Kind: "Group", Name: "system:masters"},
				{Kind: "Group", Name: "tenant:globex"},
				{Kind: "User", Name: "system:kube-scheduler"},
				{Kind: "ServiceAccount", Namespace: "globex--web", Name: "robot"},
				{Kind: "ServiceAccount", Namespace: "kube-system", Name: "x"},
				peter,
				{Kind: "Group", Name: "tenant:acme"},
			}
		})
		w.expect("some", "acme--web", "kubetenant:admins admin: peter tenant:acme")
		if got, want := w.status(), "SubjectRefused 1/1/0 of generation 1"; got != want {
			t.Errorf("the status: %s, want %s", got, want)
		}
	})
}

// TestManyRefusedSubjects checks that the message of a condition about very many refused subjects
// is truncated, because the server would reject a longer message.
func TestManyRefusedSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 32768 // the maximum length of a message of metav1.Condition
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			refused := slices.Repeat([]v1alpha1.Subject{{Kind: "Group", Name: "tenant:globex"}}, 100)
			for i := range 32 {
				role := fmt.Sprintf("role-%d", i)
				s.Bindings = append(s.Bindings, v1alpha1.TenantBinding{ClusterRole: role, Subjects: refused})
			}
		})
		u, err := w.dynamic.Resource(resource).Get(t.Context(), "acme", metav1.GetOptions{})
		w.must(err)
		stored, err := typed.Decode[v1alpha1.Tenant](u)
		w.must(err)
		for _, kind := range []string{v1alpha1.ConditionPrepared, v1alpha1.ConditionReady} {
			c := meta.FindStatusCondition(stored.Status.Conditions, kind)
			if c == nil || len(c.Message) > limit || !strings.HasSuffix(c.Message, " ...") {
				t.Errorf("%s is longer than %d bytes or not truncated: %.200v", kind, limit, c)
			}
		}
	})
}

// TestFailures checks that a namespace with a failed write is not marked as prepared, that the
// Tenant names the namespace, and that the write is retried.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("acme--db", "acme", nil)
		var broken atomic.Bool
		broken.Store(true)
		prepend(&w.kube.Fake, "create", "rolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return broken.Load() && a.GetNamespace() == "acme--db", nil, errors.New("no room")
		})
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		if got, want := w.status(), "Failed 2/1/1 of generation 1"; got != want || w.prepared("acme--db") != "" {
			t.Errorf("the status: %s, want %s; prepared %q", got, want, w.prepared("acme--db"))
		}
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		w.settle()
		if got, want := w.status(), "Prepared 2/2/0 of generation 1"; got != want {
			t.Errorf("the status: %s, want %s", got, want)
		}
		list, err := w.kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		var told []string
		for _, event := range list.Items {
			told = append(told, event.Type+" "+event.Reason+" of "+event.InvolvedObject.Name)
		}
		slices.Sort(told)
		if want := []string{"Normal Prepared of acme", "Warning Failed of acme"}; !slices.Equal(told, want) {
			t.Errorf("events: %q, want %q", told, want)
		}
		// The status reports an object of another caller that has the name of a managed object.
		_, err = w.kube.RbacV1().RoleBindings("acme--db").Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubetenant:binding:view"}}, metav1.CreateOptions{})
		w.must(err)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Bindings = []v1alpha1.TenantBinding{{ClusterRole: "view", Subjects: []v1alpha1.Subject{mary}}}
		})
		if got := w.status(); !strings.HasPrefix(got, "Failed 2/1/1") {
			t.Errorf("the status: %s", got)
		}
	})
}

// TestDeletedDefinition checks that bindings remain after the definition of Tenants is deleted.
func TestDeletedDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		w.must(w.dynamic.Resource(definitions).Delete(t.Context(), "tenants.kubetenant.dev", metav1.DeleteOptions{}))
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		time.Sleep(20 * time.Minute)
		w.settle()
		w.expect("without the definition", "acme--web", "kubetenant:admins admin: peter")
		w.undefined.Store(true)
		w.stop()
		w.start()
		time.Sleep(20 * time.Minute)
		w.settle()
		w.expect("with a new leader", "acme--web", "kubetenant:admins admin: peter")
	})
}

// TestFailureBackoff checks that the delay between retries grows, even if the error differs each
// time.
func TestFailureBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var tries atomic.Int64
		prepend(&w.kube.Fake, "create", "rolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, fmt.Errorf("reset at %d", tries.Add(1))
		})
		for i := range 20 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		time.Sleep(9 * time.Minute)
		w.settle()
		if n := tries.Load(); n < 100 || n > 1000 {
			t.Errorf("tried %d times", n)
		}
	})
}

// TestForeignLabelsAreNotDrift checks that labels and annotations that webhooks of other programs
// add to each object do not cause writes.
func TestForeignLabelsAreNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(t.Context(), "kubetenant:admins", metav1.GetOptions{})
		w.must(err)
		b.Labels["policy.example/seen"] = "yes"
		b.Annotations = map[string]string{"policy.example/seen": "yes", tenant.CreatorAnnotation: "{}"}
		_, err = w.kube.RbacV1().RoleBindings("acme--web").Update(t.Context(), b, metav1.UpdateOptions{})
		w.must(err)
		w.writes()
		time.Sleep(time.Hour)
		if n := w.writes(); n != 0 {
			t.Errorf("written %d times", n)
		}
	})
}

// TestTerminatingNamespaces checks that the status does not count a terminating namespace, and
// that the engine changes nothing in it. Its service accounts lose their roles in other
// namespaces after it is deleted.
func TestTerminatingNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("acme--ci", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = []v1alpha1.Subject{peter, {Kind: "ServiceAccount", Namespace: "acme--ci", Name: "robot"}}
		})
		w.expect("both", "acme--web", "kubetenant:admins admin: peter robot")
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--ci", metav1.GetOptions{})
		w.must(err)
		ns.DeletionTimestamp, ns.Finalizers = new(metav1.Now()), []string{"x/y"}
		_, err = w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
		w.must(err)
		w.settle()
		if got, want := w.status(), "Prepared 1/1/0 of generation 1"; got != want {
			t.Errorf("the status: %s, want %s", got, want)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = append(s.Admins, mary) })
		w.expect("changed Tenant", "acme--web", "kubetenant:admins admin: peter robot mary")
		w.expect("terminating namespace", "acme--ci", "kubetenant:admins admin: peter robot")
		w.must(w.kube.CoreV1().Namespaces().Delete(t.Context(), "acme--ci", metav1.DeleteOptions{}))
		w.settle()
		w.expect("without the namespace", "acme--web", "kubetenant:admins admin: peter mary")
		w.namespace("acme--ci", "acme", nil)
		w.settle()
		w.expect("namespace created again", "acme--web", "kubetenant:admins admin: peter robot mary")
	})
}

// TestReservedNamespaces checks that the engine creates nothing in a system namespace that has
// the label of a tenant.
func TestReservedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.owners.Reserve([]string{"kube-system"})
		w.namespace("kube-system", "acme", nil)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		w.expect("system namespace", "kube-system")
		w.expect("namespace of the tenant", "acme--web", "kubetenant:admins admin: peter")
	})
}
