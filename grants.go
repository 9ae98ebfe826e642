package kubetenant

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/grant"
	grantplugin "github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// grantCycle is the time after which each grant's grantor is checked again, and the precision of
// status.lastUsed.
const (
	grantCycle = time.Minute
	// doubt is how long a grantor must not be allowed before that is written: a server learns of a
	// RoleBinding and of the grant that was made with it in no order.
	doubt = 3 * time.Second
)

const fieldManager = "kubetenant"

var accessGrants = schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "accessgrants"}

// Grants are the AccessGrants of a cluster.
type Grants struct {
	client   dynamic.Interface
	now      func() time.Time
	index    *grant.Index
	sessions *authz.Sessions
	may      authorizer.Authorizer // what grantors may do
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	used    map[cache.ObjectName]time.Time // since the last look
	doubted map[cache.ObjectName]time.Time // since when a grantor seems not to be allowed any more
}

func newGrants(client dynamic.Interface, now func() time.Time, sessions *authz.Sessions) *Grants {
	return &Grants{client: client, now: now, index: grant.NewIndex(), sessions: sessions,
		informer: dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(accessGrants).Informer(),
		used:     map[cache.ObjectName]time.Time{}, doubted: map[cache.ObjectName]time.Time{}}
}

// Run follows the grants, and writes their status, until ctx ends. Once per Grants.
func (g *Grants) Run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	informer := g.informer
	add := func(obj any) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		g.set(ctx, u)
		queue.Add(cache.MetaObjectToName(u))
	}
	update := func(was, is any) {
		add(is)
		before, _ := was.(*unstructured.Unstructured)
		now, _ := is.(*unstructured.Unstructured)
		if before != nil && now != nil && !sameRights(before, now) {
			g.sessions.EndExcepted(now.GetNamespace())
		}
	}
	remove := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			g.index.Delete(name.Namespace, name.Name)
			g.sessions.EndExcepted(name.Namespace)
			g.takeUse(name)
			g.trusts(name)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: update, DeleteFunc: remove}); err != nil {
		klog.FromContext(ctx).Error(err, "Grants are not followed")
		return
	}
	go informer.RunWithContext(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) {
		for _, obj := range informer.GetStore().List() {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				queue.Add(cache.MetaObjectToName(u))
			}
		}
	}, grantCycle)
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		err := g.writeStatus(ctx, informer.GetStore(), name)
		if errors.Is(err, errDoubted) {
			queue.Forget(name)
			queue.AddAfter(name, doubt)
		} else if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("The status of a grant could not be written", "grant", name, "err", err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// HasSynced reports whether the grants that there were when Run began are known.
func (g *Grants) HasSynced() bool { return g.informer.HasSynced() }

// Sync takes over the grants as they are now, once: for a cluster that does not change.
func (g *Grants) Sync(ctx context.Context) error {
	list, err := g.client.Resource(accessGrants).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		g.set(ctx, &list.Items[i])
	}
	return nil
}

// set indexes a grant that counts.
func (g *Grants) set(ctx context.Context, u *unstructured.Unstructured) {
	counts, err := grantOf(u)
	if err != nil {
		klog.FromContext(ctx).Info("A grant is not understood and counts for nothing", "namespace", u.GetNamespace(), "grant", u.GetName(), "err", err)
	}
	if counts == nil {
		g.index.Delete(u.GetNamespace(), u.GetName())
		return
	}
	g.index.Set(counts)
}

// live reads a grant as the server has it now.
func (g *Grants) live(ctx context.Context, namespace, name string) (*grant.Grant, error) {
	u, err := g.client.Resource(accessGrants).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return grantOf(u)
}

// noteUse remembers that a grant was used.
func (g *Grants) noteUse(used *grant.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used[cache.NewObjectName(used.Namespace, used.Name)] = g.now()
}

// grantOf returns what a grant says, or nil for one that does not count: that nobody recorded, or that
// is not accepted or being deleted.
func grantOf(u *unstructured.Unstructured) (*grant.Grant, error) {
	g, err := v1alpha1.AccessGrantOf(u)
	if err != nil || g.Spec.Grantor == nil || !g.Accepted() || g.DeletionTimestamp != nil {
		return nil, err
	}
	out := &grant.Grant{Namespace: g.Namespace, Name: g.Name, UID: g.UID, Users: g.Spec.From.Users, Groups: g.Spec.From.Groups}
	if out.Owner, err = tenant.Parse(g.Spec.Grantor.Owner); err != nil {
		return nil, err
	}
	if out.Tenant, err = tenant.Parse(g.Spec.From.Tenant); err != nil {
		return nil, err
	}
	if grantor, err := tenant.Parse(g.Spec.Grantor.Tenant); err != nil || grantor != out.Owner && !grantor.IsSystem() {
		return nil, err // a grantee's grant would be its own reason
	}
	for _, name := range g.Spec.From.ServiceAccounts {
		out.Users = append(out.Users, serviceaccount.MakeUsername(name.Namespace, name.Name))
	}
	if g.Spec.Expires != nil {
		out.Expires = g.Spec.Expires.Time
	}
	for _, r := range g.Spec.To {
		out.Rules = append(out.Rules, grant.Rule{APIGroups: r.APIGroups, Resources: r.Resources, Verbs: r.Verbs, ResourceNames: r.ResourceNames})
	}
	return out, nil
}

// readGrant is what the admission plugin is told of a grant.
func readGrant(obj runtime.Object) (*grantplugin.Request, error) {
	g, err := v1alpha1.AccessGrantOf(obj)
	if err != nil {
		return nil, err
	}
	request := &grantplugin.Request{}
	if request.From, err = tenant.Parse(g.Spec.From.Tenant); err != nil {
		return nil, err
	}
	for _, a := range g.Actions() {
		request.Actions = append(request.Actions, authorizer.AttributesRecord{ResourceRequest: true, Namespace: g.Namespace,
			APIGroup: a.APIGroup, APIVersion: "*", Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Verb: a.Verb})
	}
	return request, nil
}
