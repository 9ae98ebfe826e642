package isolation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	systemNamespace  = "kube-system"
	missingNamespace = "kubetenant-isolation-missing"
	robot            = "robot"
	// within bounds how long what was made takes to count.
	within = 30 * time.Second
	// patience bounds how long a request may take; a slow answer is none that leaks.
	patience = 2 * time.Minute
)

// world is what a run makes.
type world struct {
	shape   Shape
	admin   kubernetes.Interface
	tenants [2]tenant.ID
	role    string // of all rights, bound to both tenants
	callers []*caller
	made    []func(context.Context) error // undone in reverse
}

// namespace returns the namespace of a tenant.
func (w *world) namespace(i int) string { return w.tenants[i].String() + "--isolation" }

// canary names the objects by which a tenant's are known, in any encoding.
func (w *world) canary(i int) string { return "canary-of-" + w.tenants[i].String() }

// caller asks the server as somebody.
type caller struct {
	name   string
	own    int  // index of its tenant, -1 for none
	real   bool // its credential is its own, so it can try to impersonate
	url    string
	client *http.Client
	stream *http.Client // without a time limit
}

func newCaller(name string, own int, config *rest.Config) (*caller, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	stream := *client
	client.Timeout = patience
	return &caller{name: name, own: own, real: config.Impersonate.UserName == "", url: strings.TrimSuffix(base.String(), "/"), client: client, stream: &stream}, nil
}

// maxBody bounds what is read of an answer.
const maxBody = 64 << 20

func (c *caller) send(ctx context.Context, method, path string, body []byte, header http.Header) (answer, error) {
	resp, err := c.do(ctx, c.client, method, path, body, header)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if isWatch(path) && resp.StatusCode == http.StatusOK && !strings.Contains(path, "timeoutSeconds") {
		return answer{code: resp.StatusCode}, nil // it is open: that is the answer
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return answer{resp.StatusCode, data}, err
}

func isWatch(path string) bool {
	return strings.Contains(path, "watch=true") || strings.Contains(path, "/watch/")
}

func (c *caller) do(ctx context.Context, client *http.Client, method, path string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	return client.Do(req)
}

// message is the message of a Status, or else nothing: a body may hold what belongs to others.
func (a answer) message() string {
	var status metav1.Status
	if json.Unmarshal(a.body, &status) == nil {
		return status.Message
	}
	return ""
}

// makeWorld makes the tenants. What it returns is to be removed, with an error too.
func makeWorld(ctx context.Context, o *Options) (*world, error) {
	admin, err := kubernetes.NewForConfig(o.Admin)
	if err != nil {
		return nil, err
	}
	w := &world{admin: admin, shape: o.Shape}
	if w.shape == "" {
		if w.shape, err = ShapeOf(ctx, admin); err != nil {
			return nil, err
		}
	}
	o.Progress("the tenants of this server: " + string(w.shape))
	for i, name := range o.Tenants {
		if w.tenants[i], err = tenant.Parse(name); err != nil {
			return nil, fmt.Errorf("tenant %q: %w", name, err)
		}
	}
	w.role = "kubetenant-isolation-" + strings.ToLower(o.Tenants[0])
	o.Progress("making two tenants")
	if err := w.makeRights(ctx); err != nil {
		return w, err
	}
	for i := range w.tenants {
		if err := w.makeNamespace(ctx, w.namespace(i), w.tenants[i]); err != nil {
			return w, err
		}
		if err := w.makeCanaries(ctx, w.namespace(i), w.canary(i)); err != nil {
			return w, err
		}
	}
	return w, w.makeCallers(ctx, o)
}

// makeRights gives both tenants all rights there are: what is denied, the boundary denies.
func (w *world) makeRights(ctx context.Context) error {
	all := []string{"*"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.role}, Rules: []rbacv1.PolicyRule{
		{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}}
	if _, err := w.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	w.undo(func(ctx context.Context) error {
		return w.admin.RbacV1().ClusterRoles().Delete(ctx, w.role, metav1.DeleteOptions{})
	})
	for suffix, name := range map[string]string{"": w.role, "-admin": "admin"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.role + suffix},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
		for i, id := range w.tenants {
			for _, name := range []string{id.Group(), serviceaccount.MakeNamespaceGroupName(w.namespace(i))} { // a webhook gives accounts no group
				binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name})
			}
		}
		if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
		w.undo(func(ctx context.Context) error {
			return w.admin.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})
		})
	}
	return nil
}

func (w *world) undo(f func(context.Context) error) { w.made = append(w.made, f) }

func (w *world) makeNamespace(ctx context.Context, name string, owner tenant.ID) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner.String()}}}
	if _, err := w.admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	w.undo(func(ctx context.Context) error { return w.deleteNamespace(ctx, name) })
	return nil
}

// deleteNamespace deletes a namespace and waits for its end.
func (w *world) deleteNamespace(ctx context.Context, name string) error {
	namespaces := w.admin.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, func(ctx context.Context) error {
		_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("namespace %s is still there", name), err)
	})
}

// eventually waits until f says nil, and returns its last error otherwise.
func eventually(ctx context.Context, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func (w *world) makeCanaries(ctx context.Context, namespace, name string) error {
	meta := metav1.ObjectMeta{Name: name}
	core := w.admin.CoreV1()
	_, configErr := core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	_, secretErr := core.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	_, robotErr := core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}, metav1.CreateOptions{})
	return errors.Join(configErr, secretErr, robotErr)
}

func (w *world) makeCallers(ctx context.Context, o *Options) error {
	add := func(name string, own int, config *rest.Config) error {
		c, err := newCaller(name, own, config)
		w.callers = append(w.callers, c)
		return err
	}
	user := o.User
	if user == nil {
		user = rest.CopyConfig(o.Admin)
		user.Impersonate = rest.ImpersonationConfig{UserName: "kubetenant-isolation", Groups: []string{w.tenants[0].Group()}}
		if w.shape == Webhook { // which does not see who impersonates
			user.Impersonate.Extra = map[string][]string{tenant.ExtraKey: {w.tenants[0].String()}}
		}
	}
	lifetime := int64(3600)
	token, err := w.admin.CoreV1().ServiceAccounts(w.namespace(0)).CreateToken(ctx, robot,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	admin := rest.CopyConfig(o.Admin)
	if o.Through != nil {
		admin.Host, admin.CAData, admin.CAFile = o.Through.Host, o.Through.CAData, o.Through.CAFile
	}
	account := rest.AnonymousClientConfig(admin)
	account.BearerToken = token.Status.Token
	nobody := rest.CopyConfig(admin)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "kubetenant-isolation-nobody"}
	if err := errors.Join(add(callerUser, 0, user), add(callerAccount, 0, account),
		add(callerNobody, -1, nobody), add(callerAnonymous, -1, rest.AnonymousClientConfig(admin))); err != nil {
		return err
	}
	// Rights and labels count as soon as the server has seen them.
	for _, c := range w.callers[:2] {
		for _, path := range []string{"/api/v1/namespaces/" + w.namespace(0) + "/configmaps", "/api/v1/configmaps", "/api/v1/secrets"} {
			err := eventually(ctx, func(ctx context.Context) error {
				a, err := c.send(ctx, http.MethodGet, w.ownOnly(c, path), nil, nil)
				if err == nil && a.code != http.StatusOK {
					err = fmt.Errorf("%s: GET %s: %d %s", c.name, path, a.code, a.message())
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ownOnly returns the path of a list as the shape wants it: a webhook cannot limit one over all namespaces, so it must say
// itself that it is about the tenant's own.
func (w *world) ownOnly(c *caller, path string) string {
	if w.shape != Webhook || strings.Contains(path, "/namespaces/") {
		return path
	}
	return query(path, "labelSelector", tenant.Label+"="+w.tenants[c.own].String())
}

// remove removes what was made, last first.
func (w *world) remove(ctx context.Context) error {
	var errs []error
	for i := len(w.made) - 1; i >= 0; i-- {
		if err := w.made[i](ctx); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func query(path string, pairs ...string) string {
	values := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		values.Add(pair[0], pair[1])
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + values.Encode()
}
