// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	systemNamespace  = "kube-system"
	missingNamespace = "kubetenant-isolation-missing"
	robot            = "robot"
	// requestTimeout is the maximum time to wait for a change to take effect, or for an event on
	// a watch.
	requestTimeout = 30 * time.Second
	// waitLimit is the maximum duration of a request. A slow response is not a leak.
	waitLimit = 2 * time.Minute
	// unauthenticatedFor is how long a gateway may respond with 401 to a new service account token.
	// After that, the run assumes that the gateway does not accept service account tokens.
	unauthenticatedFor = 5 * time.Second
)

// fixture has the tenants and the callers of a run. It creates and deletes the objects of the
// run.
type fixture struct {
	mode           installation.Mode
	admin          kube.Interface
	objects        dynamic.Interface
	tenants        [2]tenant.ID
	callers        []*caller
	mayHaveObjects bool // objects of the run may exist in the cluster
}

// newFixture returns a fixture. It creates no objects in the cluster.
func newFixture(o *Options) (*fixture, error) {
	w := &fixture{mode: o.Mode}
	var err error
	for i, name := range o.Tenants {
		if w.tenants[i], err = tenant.Parse(name); err != nil {
			return nil, fmt.Errorf("tenant %q: %w", name, err)
		}
	}
	if w.admin, err = kube.NewForConfig(o.Admin); err != nil {
		return nil, err
	}
	w.objects, err = dynamic.NewForConfig(o.Admin)
	return w, err
}

// namespace returns the name of the namespace of a tenant. i is the index of the tenant.
func (w *fixture) namespace(i int) string { return w.tenants[i].String() + "--isolation" }

// recreatedNamespace returns the name of the namespace that is deleted and created again for the
// second tenant. The name has no tenant prefix.
func (w *fixture) recreatedNamespace() string { return w.tenants[0].String() + "-reborn" }

// role returns the name of the ClusterRole with all rights. The names of the ClusterRoleBindings
// begin with the same name.
func (w *fixture) role() string {
	return "kubetenant-isolation-" + strings.ToLower(w.tenants[0].String())
}

// canary returns the name of the ConfigMap and the Secret of a tenant. If a response contains
// this name, in any encoding, it contains an object of the tenant.
func (w *fixture) canary(i int) string { return "canary-of-" + w.tenants[i].String() }

// caller sends requests to the server with one credential.
type caller struct {
	name   string
	own    int  // index of the caller's tenant, or -1 if the caller has no tenant
	real   bool // not impersonated by the admin, so it can try to impersonate
	url    string
	client *http.Client
	stream *http.Client // without a timeout
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
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	stream := *client
	client.Timeout = waitLimit
	return &caller{
		name:   name,
		own:    own,
		real:   config.Impersonate.UserName == "",
		url:    strings.TrimSuffix(base.String(), "/"),
		client: client,
		stream: &stream,
	}, nil
}

// maxBody is the maximum number of bytes that are read from a response body.
const maxBody = 64 << 20

// retries is the maximum number of retries of a request. longestRetry is the maximum time to
// wait before a retry, even if the server requests a longer time.
const (
	retries      = 5
	longestRetry = 10 * time.Second
)

// send sends a request. Like client-go, it retries after a 429 or 5xx response that has the
// header
// Retry-After.
func (c *caller) send(ctx context.Context, method, path string, body []byte, header http.Header) (answer, error) {
	for attempt := 0; ; attempt++ {
		a, err := c.sendOnce(ctx, method, path, body, header)
		if err != nil || a.retryAfter == 0 || attempt == retries {
			return a, err
		}
		select {
		case <-time.After(min(a.retryAfter, longestRetry)):
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

func (c *caller) sendOnce(ctx context.Context, method, path string, body []byte, header http.Header) (answer, error) {
	resp, err := c.do(ctx, c.client, method, path, body, header)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{code: resp.StatusCode}
	if isWatch(path) && resp.StatusCode == http.StatusOK && !strings.Contains(path, "timeoutSeconds") {
		return a, nil // the start of the watch is the result
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			a.retryAfter = max(time.Duration(seconds)*time.Second, time.Millisecond)
		}
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	a.truncated = len(a.body) == maxBody
	return a, err
}

func isWatch(path string) bool {
	return strings.Contains(path, "watch=true") || strings.Contains(path, "/watch/")
}

func (c *caller) do(
	ctx context.Context, client *http.Client, method, path string, body []byte, header http.Header,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	return client.Do(req)
}

// answer is the response to a request.
type answer struct {
	code       int
	body       []byte
	truncated  bool
	retryAfter time.Duration // 0 if the server did not request a retry
}

// message returns the message of a Status, or "". It does not return any other body, because a body
// may contain objects of another tenant.
func (a answer) message() string {
	var status metav1.Status
	if json.Unmarshal(a.body, &status) == nil && status.Kind == "Status" {
		return status.Message
	}
	return ""
}

// create creates the objects of both tenants, and the callers.
func (w *fixture) create(ctx context.Context, m *matrix) error {
	if err := w.makeRights(ctx); err != nil {
		return err
	}
	for i := range w.tenants {
		if err := w.makeNamespace(ctx, w.namespace(i), w.tenants[i]); err != nil {
			return err
		}
		if err := w.makeCanaries(ctx, w.namespace(i), w.canary(i)); err != nil {
			return err
		}
	}
	return w.makeCallers(ctx, m)
}

// meta returns the metadata of an object with the label of the run.
func (w *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: w.tenants[0].String()}}
}

// makeRights binds a ClusterRole with all rights, and the ClusterRole admin, to the callers of
// both tenants, so that only the boundary denies their requests.
func (w *fixture) makeRights(ctx context.Context) error {
	all := []string{"*"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: w.meta(w.role()),
		Rules: []rbacv1.PolicyRule{
			{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all},
		},
	}
	_, err := w.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	var answered apierrors.APIStatus
	w.mayHaveObjects = err == nil || !errors.As(err, &answered) // the role may exist after an unanswered request
	if err != nil {
		return err
	}
	for suffix, name := range map[string]string{"": w.role(), "-admin": "admin"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: w.meta(w.role() + suffix),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}
		for i, id := range w.tenants {
			// in webhook mode, service accounts are not in the group of their tenant
			for _, name := range []string{id.Group(), serviceaccount.MakeNamespaceGroupName(w.namespace(i))} {
				binding.Subjects = append(binding.Subjects,
					rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name})
			}
		}
		if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// makeNamespace creates a namespace of a tenant. It returns an error if the server does not
// store the name and the tenant label.
func (w *fixture) makeNamespace(ctx context.Context, name string, owner tenant.ID) error {
	ns := &corev1.Namespace{ObjectMeta: w.meta(name)}
	ns.Labels[tenant.Label] = owner.String()
	created, err := w.admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err == nil && (created.Name != name || created.Labels[tenant.Label] != owner.String()) {
		err = fmt.Errorf("the server did not store namespace %s with the label %s", name, tenant.Label)
	}
	return err
}

// eventually calls f until it returns nil. If [requestTimeout] expires or ctx is done, the error
// wraps the last error of f.
func eventually(ctx context.Context, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(
		ctx,
		50*time.Millisecond,
		requestTimeout,
		true,
		func(ctx context.Context) (bool, error) {
			last = f(ctx)
			return last == nil, nil
		},
	)
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func (w *fixture) makeCanaries(ctx context.Context, namespace, name string) error {
	meta := metav1.ObjectMeta{Name: name}
	core := w.admin.CoreV1()
	_, configErr := core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	_, secretErr := core.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	_, robotErr := core.ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}, metav1.CreateOptions{})
	return errors.Join(configErr, secretErr, robotErr)
}

func (w *fixture) makeCallers(ctx context.Context, m *matrix) error {
	o := &m.Options
	add := func(name string, own int, config *rest.Config) error {
		c, err := newCaller(name, own, config)
		w.callers = append(w.callers, c)
		return err
	}
	user := o.User
	if user == nil {
		user = rest.CopyConfig(o.Admin)
		user.Impersonate = rest.ImpersonationConfig{UserName: "kubetenant-isolation", Groups: []string{w.tenants[0].Group()}}
		if w.mode == installation.Webhook { // the webhook service cannot determine that the user is impersonated
			user.Impersonate.Extra = map[string][]string{tenant.ExtraKey: {w.tenants[0].String()}}
		}
	}
	lifetime := int64(3600)
	token, err := w.admin.CoreV1().ServiceAccounts(w.namespace(0)).CreateToken(ctx, robot,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	admin := rest.CopyConfig(o.Admin)
	if o.Through != nil {
		admin.Host, admin.CAData, admin.CAFile = o.Through.Host, o.Through.CAData, o.Through.CAFile
	}
	account := rest.AnonymousClientConfig(admin)
	account.BearerToken = token.Status.Token
	noTenant := rest.CopyConfig(admin)
	noTenant.Impersonate = rest.ImpersonationConfig{UserName: "kubetenant-isolation-nobody"}
	if err := errors.Join(add(callerUser, 0, user), add(callerAccount, 0, account),
		add(callerNoTenant, -1, noTenant), add(callerAnonymous, -1, rest.AnonymousClientConfig(admin))); err != nil {
		return err
	}
	return w.waitForRights(ctx, m)
}

// waitForRights waits until bindings and labels take effect, so that each caller of a tenant can
// list the canaries of its tenant. In gateway mode, a service account that the gateway does not
// authenticate becomes a caller without a tenant.
func (w *fixture) waitForRights(ctx context.Context, m *matrix) error {
	account := w.callers[1]
	if w.mode == installation.Gateway && account.unauthenticated(ctx, "/api/v1/namespaces/"+w.namespace(0)+"/configmaps") {
		account.own = -1
		m.report.Notes = append(m.report.Notes, "the gateway does not accept service account tokens: it must reject every "+
			"request with one")
	}
	for _, c := range w.callers[:2] {
		if c.own < 0 {
			continue
		}
		for _, path := range []string{
			"/api/v1/namespaces/" + w.namespace(0) + "/configmaps", "/api/v1/configmaps", "/api/v1/secrets",
		} {
			err := eventually(ctx, func(ctx context.Context) error {
				a, err := c.send(ctx, http.MethodGet, w.ownOnly(c, path), nil, nil)
				switch {
				case err != nil:
					return err
				case a.code != http.StatusOK:
					return fmt.Errorf("%s: GET %s: %d %s", c.name, path, a.code, a.message())
				case !bytes.Contains(a.body, []byte(w.canary(c.own))):
					return fmt.Errorf("%s: GET %s: the list contains no object of the caller's tenant", c.name, path)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unauthenticated reports whether all responses within [unauthenticatedFor] have status 401.
func (c *caller) unauthenticated(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, unauthenticatedFor)
	defer cancel()
	last := 0
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		a, err := c.send(ctx, http.MethodGet, path, nil, nil)
		if err == nil {
			last = a.code
		}
		return err == nil && a.code != http.StatusUnauthorized, nil
	})
	return last == http.StatusUnauthorized
}

// ownOnly returns the path of a list that contains only objects of the caller's tenant. In
// webhook mode, the server cannot limit a list over all namespaces, so the path selects the
// tenant by its label.
func (w *fixture) ownOnly(c *caller, path string) string {
	if w.mode != installation.Webhook || strings.Contains(path, "/namespaces/") {
		return path
	}
	return query(path, "labelSelector", tenant.Label+"="+w.tenants[c.own].String())
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
