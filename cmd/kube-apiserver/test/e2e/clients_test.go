// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// clientFiles contains the input for clients of other projects. A tenant's admin uses these clients
// with the same rights on a server with tenancy and on upstream's server. The outcomes of each step
// must be equal, except for the differences in testdata/clients/differences.yaml.
const clientFiles = "testdata/clients"

// serverPair contains a server with tenancy, upstream's server, and the results of the comparison.
type serverPair struct {
	mode             string // deployment mode of the server with tenancy, as in differences.yaml
	tenancy, vanilla *server
	differences      map[string][2]string // differing outcomes, keyed by step: with tenancy, and on upstream's server
	steps            map[string]string    // outcome with tenancy, keyed by step
	runs             map[string]int       // number of runs of each step
}

// startPair starts upstream's server, and a server with tenancy that has the flags args.
func startPair(t *testing.T, mode string, args ...string) *serverPair {
	t.Helper()
	b := &serverPair{
		mode:        mode,
		differences: map[string][2]string{},
		steps:       map[string]string{},
		runs:        map[string]int{},
	}
	for _, s := range []struct {
		into **server
		args []string
	}{{&b.tenancy, args}, {&b.vanilla, []string{"--tenancy=false"}}} {
		*s.into = startServer(t, nil, append([]string{"--workload-controllers=true"}, s.args...)...)
		(*s.into).prepare(t)
	}
	return b
}

// compare runs a step on both servers and records different outcomes.
func (b *serverPair) compare(step string, run func(s *server) string) {
	if b.runs[step]++; b.runs[step] > 1 {
		step = fmt.Sprintf("%s (%d)", step, b.runs[step])
	}
	got, want := run(b.tenancy), run(b.vanilla)
	if b.steps[step] = got; got != want {
		b.differences[step] = [2]string{got, want}
	}
}

// checkDifferences compares the recorded differences with one part of the list of differences by
// design.
func (b *serverPair) checkDifferences(t *testing.T, part string) {
	t.Helper()
	text := readFile(t, filepath.Join(clientFiles, "differences.yaml"))
	var parts map[string][]struct {
		Steps                           []string
		Shape, Tenancy, Vanilla, Reason string // if Shape is empty, an entry applies to every deployment mode
	}
	if err := yaml.UnmarshalStrict([]byte(text), &parts); err != nil {
		t.Fatal(err)
	}
	total := len(b.differences)
	for _, d := range parts[part] {
		if d.Shape != "" && d.Shape != b.mode {
			continue
		}
		if d.Reason == "" {
			t.Errorf("%v: no reason", d.Steps)
		}
		for _, pattern := range d.Steps {
			exact, listed := regexp.MustCompile(`\A(?:`+pattern+`)\z`), false
			for step, got := range b.differences {
				if exact.MatchString(step) && got == [2]string{d.Tenancy, d.Vanilla} {
					listed = true
					delete(b.differences, step)
				}
			}
			if !listed {
				t.Errorf("%s: listed as %s, upstream %s, but no step has these outcomes", pattern, d.Tenancy, d.Vanilla)
			}
			for step, result := range b.steps {
				if exact.MatchString(step) && result == "ok" && !strings.HasPrefix(d.Tenancy, "ok") {
					t.Errorf("%s: listed as %s, but %s succeeds", pattern, d.Tenancy, step)
				}
			}
		}
	}
	for step, got := range b.differences {
		t.Errorf("%s: %s, upstream %s", step, got[0], got[1])
	}
	t.Logf("%d steps, of which %d differ", len(b.runs), total)
}

var serverError = regexp.MustCompile(`Error from server(?: \((\w+)\))?`)

// outcome returns the result of a kubectl or helm command: ok, or failed with the reason of the
// server's error. The result also contains the output of "auth can-i", and whether there are
// warnings.
func outcome(stdout, stderr string, err error) string {
	result := "ok"
	if err != nil {
		result = "failed"
		if m := serverError.FindStringSubmatch(stderr); m != nil {
			result = "failed: " + m[1]
		}
	}
	if word, _, _ := strings.Cut(strings.TrimSpace(stdout), " - "); word == "yes" || word == "no" { // without the reason
		result += ": " + word
	}
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "Warning:") || strings.HasPrefix(line, "warning:") {
			result += ", warned"
			break
		}
	}
	return result
}

// command runs a program as a tenant's admin.
func command(t *testing.T, s *server, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	home := filepath.Join(filepath.Dir(s.Kubeconfig("acme")), "home")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig("acme"), "HOME="+home, "XDG_CONFIG_HOME=",
		"XDG_CACHE_HOME=", "XDG_DATA_HOME=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	result := outcome(stdout.String(), stderr.String(), err)
	if err != nil || strings.Contains(result, "warned") {
		t.Logf("%s %s: %s: %s", filepath.Base(program), strings.Join(args, " "), result, strings.TrimSpace(stderr.String()))
	}
	return result
}

// TestClientsKubectl compares the outcomes of common kubectl commands.
func TestClientsKubectl(t *testing.T) {
	t.Parallel()
	kubectlCommands(t, startPair(t, "compiled in"))
}

func kubectlCommands(t *testing.T, b *serverPair) {
	t.Helper()
	text := readFile(t, filepath.Join(clientFiles, "kubectl.txt"))
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		args := strings.Fields(strings.ReplaceAll(line, "FILES", clientFiles))
		if !slices.Contains(args, "-n") && !strings.Contains(line, "-k ") {
			args = append([]string{"-n", "acme--web"}, args...)
		}
		b.compare(line, func(s *server) string {
			return command(t, s, binary(t, "kubectl"), args...)
		})
	}
	b.checkDifferences(t, "kubectl")
}

// TestClientsHelm compares the outcomes of Helm commands that install, upgrade, roll back and
// uninstall releases.
func TestClientsHelm(t *testing.T) {
	t.Parallel()
	helmRelease(t, startPair(t, "compiled in"))
}

func helmRelease(t *testing.T, b *serverPair) {
	t.Helper()
	chart := filepath.Join(clientFiles, "chart")
	for _, line := range []string{
		"install web CHART -n acme--helm --create-namespace",
		"install web CHART -n acme--helm --create-namespace",
		"upgrade --install first CHART -n acme--first --create-namespace", "uninstall first -n acme--first",
		"list -n acme--helm", "list -A", "status web -n acme--helm", "history web -n acme--helm", "get all web -n acme--helm",
		"upgrade web CHART -n acme--helm --set image=registry.example.com/web:2",
		"upgrade web CHART -n acme--helm --set image=registry.example.com/web:3 --server-side=false --force-replace",
		"upgrade web CHART -n acme--helm --set image=registry.example.com/web:4 --server-side=true --force-conflicts",
		"upgrade web CHART -n acme--helm --dry-run=server",
		"upgrade --install other CHART -n acme--other --create-namespace --dry-run=server",
		"rollback web 1 -n acme--helm", "rollback web 2 -n acme--helm",
		"uninstall web -n acme--helm", "uninstall web -n acme--helm", "uninstall web -n acme--helm --ignore-not-found",
		"upgrade --install web CHART -n acme--helm", "uninstall web -n acme--helm --keep-history",
		"rollback web 1 -n acme--helm",
		"install web CHART -n globex--shop", "install web CHART -n nowhere --create-namespace",
	} {
		b.compare(line, func(s *server) string {
			return command(t, s, binary(t, "helm"), strings.Fields(strings.ReplaceAll(line, "CHART", chart))...)
		})
	}
	b.checkDifferences(t, "helm")
}

// TestClientsJavaScript compares the outcomes of a script that replaces whole objects with the
// JavaScript client of Kubernetes.
func TestClientsJavaScript(t *testing.T) {
	t.Parallel()
	modules := os.Getenv("KUBETENANT_JAVASCRIPT")
	if modules == "" {
		t.Fatal("needs KUBETENANT_JAVASCRIPT: run make test-clients, which installs it")
	}
	script, err := filepath.Abs(filepath.Join(clientFiles, "client.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(modules, "client.mjs") // next to the installed modules
	copyFile(t, script, local)
	b := startPair(t, "compiled in")
	outcomes := map[*server][]string{}
	for _, s := range []*server{b.tenancy, b.vanilla} {
		cmd := exec.CommandContext(t.Context(), "node", local)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig("acme"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		outcomes[s] = strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	for i, line := range outcomes[b.vanilla] {
		step, _, _ := strings.Cut(line, ": ")
		b.compare(step, func(s *server) string {
			if i >= len(outcomes[s]) {
				return "nothing"
			}
			return outcomes[s][i]
		})
	}
	b.checkDifferences(t, "javascript")
}

// status returns the outcome of a call.
func status(err error) string {
	if err == nil {
		return "ok"
	}
	apiStatus := apierrors.APIStatus(nil)
	if !errors.As(err, &apiStatus) {
		return "failed"
	}
	return fmt.Sprintf("%d %s", apiStatus.Status().Code, apiStatus.Status().Reason)
}

// TestClientsAllRequests compares the outcomes of requests for every resource and verb that
// discovery lists, except subresources that connect to a kubelet. The requests are for the tenant's
// namespace, a namespace that does not exist and, for list and watch, all namespaces.
func TestClientsAllRequests(t *testing.T) {
	t.Parallel()
	sendAllVerbs(t, startPair(t, "compiled in"))
}

func sendAllVerbs(t *testing.T, b *serverPair) {
	t.Helper()
	clients, lists := map[*server]dynamic.Interface{}, map[*server][]*metav1.APIResourceList{}
	for _, s := range []*server{b.tenancy, b.vanilla} {
		c := s.config(t, "acme")
		c.WarningHandler = rest.NoWarnings{}
		var err error
		if clients[s], err = dynamic.NewForConfig(c); err != nil {
			t.Fatal(err)
		}
		found, err := discovery.NewDiscoveryClientForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, lists[s], err = found.ServerGroupsAndResources(); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, func() error { // until existing objects have the tenant label
		_, err := clients[b.tenancy].Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
			List(t.Context(), metav1.ListOptions{})
		return err
	})
	for _, list := range lists[b.vanilla] {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			if slices.Contains([]string{"exec", "attach", "portforward", "proxy", "log"}, sub) {
				continue // these subresources connect to a kubelet, and none runs
			}
			places := []string{"acme--web", "acme--none", ""}
			if !r.Namespaced {
				places = []string{""}
			}
			for _, verb := range r.Verbs {
				for _, place := range places {
					if place == "" && r.Namespaced && verb != "list" && verb != "watch" {
						continue
					}
					name := "none"
					if resource == "namespaces" {
						name = "acme--none"
					}
					b.compare(
						fmt.Sprintf("%s %s %s in %q", verb, list.GroupVersion, r.Name, place),
						func(s *server) string {
							return status(sendVerb(t.Context(), clients[s].Resource(gv.WithResource(resource)).Namespace(place),
								gv.WithKind(r.Kind), verb, name, sub))
						},
					)
				}
			}
		}
	}
	b.checkDifferences(t, "sweep")
}

// sendVerb sends a request with the given verb. All writes are dry runs.
func sendVerb(
	ctx context.Context, c dynamic.ResourceInterface, kind schema.GroupVersionKind, verb, name, subresource string,
) error {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	var subs []string
	if subresource != "" {
		subs = []string{subresource}
	}
	dry := []string{metav1.DryRunAll}
	var err error
	switch verb {
	case "get":
		_, err = c.Get(ctx, name, metav1.GetOptions{}, subs...)
	case "list":
		_, err = c.List(ctx, metav1.ListOptions{})
	case "watch":
		w, problem := c.Watch(ctx, metav1.ListOptions{})
		if err = problem; err == nil {
			w.Stop()
		}
	case "create":
		_, err = c.Create(ctx, object, metav1.CreateOptions{DryRun: dry}, subs...)
	case "update":
		object.SetResourceVersion("1")
		_, err = c.Update(ctx, object, metav1.UpdateOptions{DryRun: dry}, subs...)
	case "patch":
		_, err = c.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{DryRun: dry}, subs...)
	case "delete":
		err = c.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry}, subs...)
	case "deletecollection":
		err = c.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{LabelSelector: "none=none"})
	}
	return err
}

// TestClientsInformers compares the outcomes of informers over all namespaces for many resources.
// It also compares paginated lists, and watches that start at the resource version of a list.
func TestClientsInformers(t *testing.T) {
	t.Parallel()
	runInformers(t, startPair(t, "compiled in"))
}

func runInformers(t *testing.T, b *serverPair) {
	t.Helper()
	for resource, kinds := range map[string]string{
		"v1": "configmaps secrets pods services serviceaccounts persistentvolumeclaims " +
			"replicationcontrollers limitranges resourcequotas events endpoints podtemplates",
		"apps/v1":                      "deployments replicasets statefulsets daemonsets controllerrevisions",
		"batch/v1":                     "jobs cronjobs",
		"networking.k8s.io/v1":         "ingresses networkpolicies",
		"policy/v1":                    "poddisruptionbudgets",
		"autoscaling/v2":               "horizontalpodautoscalers",
		"rbac.authorization.k8s.io/v1": "roles rolebindings",
		"coordination.k8s.io/v1":       "leases",
		"discovery.k8s.io/v1":          "endpointslices",
		"events.k8s.io/v1":             "events",
	} {
		gv, err := schema.ParseGroupVersion(resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range strings.Fields(kinds) {
			b.compare("an informer of "+kind+" in "+resource, func(s *server) string {
				return runInformer(t, s, gv.WithResource(kind))
			})
		}
	}
	for name, request := range map[string]func(all, own dynamic.ResourceInterface) error{
		"list the first page": func(all, _ dynamic.ResourceInterface) error {
			return list(t, all, metav1.ListOptions{Limit: 1})
		},
		"list page after page": func(all, _ dynamic.ResourceInterface) error { return listPages(t, all) },
		"list a page of nonsense": func(all, _ dynamic.ResourceInterface) error {
			return list(t, all, metav1.ListOptions{Limit: 1, Continue: "nonsense"})
		},
		"list an old version": func(all, _ dynamic.ResourceInterface) error {
			return list(t, all, metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		},
		"list any version": func(all, _ dynamic.ResourceInterface) error {
			return list(t, all, metav1.ListOptions{ResourceVersion: "0"})
		},
		"watch any version": func(all, own dynamic.ResourceInterface) error {
			return watchFrom(t, all, own, "0")
		},
		"watch an old version": func(all, own dynamic.ResourceInterface) error {
			return watchFrom(t, all, own, "1")
		},
		"watch from where a list ended": func(all, own dynamic.ResourceInterface) error { return watchFromList(t, all, own) },
	} {
		for _, namespace := range []string{"acme--web", ""} {
			b.compare(fmt.Sprintf("%s in %q", name, namespace), func(s *server) string {
				c := s.dynamic(t, "acme")
				all := c.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
				return status(request(all.Namespace(namespace), all.Namespace("acme--web")))
			})
		}
	}
	b.checkDifferences(t, "informers")
}

func list(t *testing.T, c dynamic.ResourceInterface, options metav1.ListOptions) error {
	t.Helper()
	_, err := c.List(t.Context(), options)
	return err
}

// listPages reads a list to its last page. Each page has one object.
func listPages(t *testing.T, c dynamic.ResourceInterface) error {
	t.Helper()
	options := metav1.ListOptions{Limit: 1}
	for range 100 {
		page, err := c.List(t.Context(), options)
		if err != nil {
			return err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
	return errors.New("the list has no last page")
}

// watchFrom starts a watch at the given resource version. It then creates an object, and waits
// until the watch returns it.
func watchFrom(t *testing.T, all, own dynamic.ResourceInterface, version string) error {
	t.Helper()
	w, err := all.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	created := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "later-"}},
	}
	if created, err = own.Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
		return err
	}
	for timeout := time.After(20 * time.Second); ; {
		select {
		case event, open := <-w.ResultChan():
			object, ok := event.Object.(*unstructured.Unstructured)
			switch {
			case !open:
				return errors.New("the watch ended")
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case ok && object.GetName() == created.GetName():
				return nil
			}
		case <-timeout:
			return errors.New("the created object did not arrive")
		}
	}
}

// watchFromList calls watchFrom with the resource version of a list.
func watchFromList(t *testing.T, all, own dynamic.ResourceInterface) error {
	t.Helper()
	ended, err := all.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	return watchFrom(t, all, own, ended.GetResourceVersion())
}

// runInformer runs an informer over all namespaces until it has synced. It returns whether the
// informer synced, was forbidden, or did neither within 20 s.
func runInformer(t *testing.T, s *server, resource schema.GroupVersionResource) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := s.dynamic(t, "acme")
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	informer := factory.ForResource(resource).Informer()
	refused := make(chan error, 1)
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "do not have the tenant label yet") {
			select {
			case refused <- err:
			default:
			}
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	switch {
	case cache.WaitForCacheSync(ctx.Done(), informer.HasSynced):
		return "synced"
	case len(refused) > 0:
		return "forbidden"
	}
	return "never synced"
}

// requests counts the requests of a client by method, except watches and requests for Leases and
// Events.
type requests struct {
	mu       sync.Mutex
	byMethod map[string]int
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !strings.Contains(req.URL.Path, "/leases/") && !strings.Contains(req.URL.Path, "/events") &&
			req.URL.Query().Get("watch") == "" {
			r.mu.Lock()
			r.byMethod[req.Method]++
			r.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestClientsOperator runs an operator with leader election and caches over all namespaces. The
// operator writes whole Pod templates. The test checks that the operator becomes idle after at most
// about 1.5 times as many reconciles and writes as on upstream's server. It also checks that no
// concurrent update is lost.
func TestClientsOperator(t *testing.T) {
	t.Parallel()
	runOperators(t, startPair(t, "compiled in"))
}

func runOperators(t *testing.T, b *serverPair) {
	t.Helper()
	cost := map[*server][2]int{} // reconciles and writes
	b.compare("ten versions", func(s *server) string {
		result, reconciles, writes := runOperator(t, s)
		cost[s] = [2]int{reconciles, writes}
		return result
	})
	// The numbers vary, because each update of the Deployment's status causes a reconcile.
	for i, unit := range []string{"reconciles", "writes"} {
		if tenancy, vanilla := cost[b.tenancy][i], cost[b.vanilla][i]; tenancy > vanilla+vanilla/2+10 {
			t.Errorf("%d %s, on upstream's server %d", tenancy, unit, vanilla)
		}
	}
	b.compare("updates by four at a time", func(s *server) string { return updateConcurrently(t, s) })
	b.checkDifferences(t, "operator")
}

func runOperator(t *testing.T, s *server) (result string, reconciles, writes int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	admin := s.client(t, "acme")
	waittest.Until(t, func() error {
		_, err := admin.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		return err
	})
	sent := &requests{byMethod: map[string]int{}}
	c := s.config(t, "acme")
	c.Wrap(sent.wrap)
	yes := true
	m, err := ctrl.NewManager(c, ctrl.Options{
		LeaderElection:                true,
		LeaderElectionID:              "operator",
		LeaderElectionNamespace:       "acme--web",
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciled := make(chan string, 1000)
	if err := ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if req.Name != "app" {
				return reconcile.Result{}, nil
			}
			app := &corev1.ConfigMap{}
			if err := m.GetClient().Get(ctx, req.NamespacedName, app); err != nil {
				return reconcile.Result{}, ctrlclient.IgnoreNotFound(err)
			}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
			_, err := ctrl.CreateOrUpdate(ctx, m.GetClient(), d, func() error {
				labels := map[string]string{"app": "app"}
				d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
				d.Spec.Template = corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, // replaces all metadata, as many operators do
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/app:" + app.Data["version"]}},
					},
				}
				return ctrl.SetControllerReference(app, d, m.GetScheme())
			})
			if err != nil {
				t.Logf("reconcile: %v", err)
			}
			reconciled <- app.Data["version"]
			return reconcile.Result{}, err
		})); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	app := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"version": "0"}}
	if _, err := admin.CoreV1().ConfigMaps("acme--web").Create(ctx, app, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	generations := ""
	for version := range 10 {
		app.Data["version"] = fmt.Sprint(version)
		if _, err := admin.CoreV1().ConfigMaps("acme--web").Update(ctx, app, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		image := "registry.example.com/app:" + app.Data["version"]
		waittest.Until(t, func() error {
			d, err := admin.AppsV1().Deployments("acme--web").Get(ctx, "app", metav1.GetOptions{})
			if err == nil && (d.Spec.Template.Spec.Containers[0].Image != image || d.Status.ObservedGeneration != d.Generation) {
				err = fmt.Errorf("the image is %s", d.Spec.Template.Spec.Containers[0].Image)
			}
			if err == nil {
				generations = fmt.Sprint(d.Generation)
			}
			return err
		})
	}
	times := awaitIdle(reconciled)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d, err := admin.AppsV1().Deployments("acme--web").Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sent.mu.Lock()
	defer sent.mu.Unlock()
	t.Logf("%d reconciles, requests: %v", times, sent.byMethod)
	return fmt.Sprintf("generation %s, at rest %t", generations, fmt.Sprint(d.Generation) == generations), times,
		sent.byMethod[http.MethodPut] + sent.byMethod[http.MethodPost] + sent.byMethod[http.MethodPatch]
}

// awaitIdle waits until the operator has not reconciled for 2 s. It returns the number of
// reconciles.
func awaitIdle(reconciled <-chan string) int {
	for times := 0; ; times++ {
		select {
		case <-reconciled:
		case <-time.After(2 * time.Second):
			return times
		}
	}
}

// updateConcurrently updates one Deployment in four goroutines at the same time.
func updateConcurrently(t *testing.T, s *server) string {
	t.Helper()
	c := s.client(t, "acme").AppsV1().Deployments("acme--web")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "counted", Annotations: map[string]string{"n": ""}}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "counted"}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.example.com/c"}}
	if _, err := c.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The slowest goroutine needs many attempts.
	untilWritten := wait.Backoff{
		Steps:    50,
		Duration: 10 * time.Millisecond,
		Factor:   1.1,
		Jitter:   1,
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if err := retry.RetryOnConflict(untilWritten, func() error {
					object, err := c.Get(t.Context(), "counted", metav1.GetOptions{})
					if err != nil {
						return err
					}
					object.Annotations["n"] += "x"
					object.Spec.Template.Annotations = nil // as a client that writes the whole template does
					_, err = c.Update(t.Context(), object, metav1.UpdateOptions{})
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	object, err := c.Get(t.Context(), "counted", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d updates, generation %d", len(object.Annotations["n"]), object.Generation)
}

// TestClientsExamples checks that the service accounts of examples/manifests have the rights that
// the comments in these files describe, and no access to another tenant.
func TestClientsExamples(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	for _, example := range []string{"operator", "ci", "gitops"} {
		s.mustKubectl(t, "admin", "apply", "-f", "../../../../examples/manifests/"+example+".yaml")
	}
	s.namespace(t, "globex--shop", "globex")
	const operator, ci, gitops = "system:serviceaccount:acme--operators:apps", "system:serviceaccount:acme--ci:deploy",
		"system:serviceaccount:acme--gitops:sync"
	for _, c := range []struct{ account, args, want string }{
		{operator, "get configmaps -A", "ok"},
		{operator, "get deployments -A", "ok"},
		{operator, "create deployment web -n acme--prod --image=registry.example.com/web", "ok"},
		{operator, "get leases none -n acme--operators", "failed: NotFound"},
		{operator, "get secrets -n acme--prod", "failed: Forbidden"},
		{operator, "get configmaps -n globex--shop", "failed: Forbidden"},
		{ci, "create configmap settings -n acme--prod --from-literal=a=b", "ok"},
		{ci, "get pods -n acme--ci", "failed: Forbidden"},
		{ci, "get pods -A", "failed: Forbidden"},
		{ci, "get pods -n globex--shop", "failed: Forbidden"},
		{gitops, "apply --server-side -k " + clientFiles + "/kustomize/overlay", "ok"},
		{gitops, "get namespaces", "ok"},
		{gitops, "get configmap none -n acme--none", "failed: NotFound"},
		{gitops, "create namespace globex--mine", "failed: Forbidden"},
		{gitops, "get configmaps -n globex--shop", "failed: Forbidden"},
	} {
		waittest.Until(t, func() error { // new bindings, and tenant labels of existing objects, take effect after a delay
			cmd := s.command(t.Context(), t, "kubectl", "admin", append(strings.Fields(c.args), "--as", c.account)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if result := outcome(stdout.String(), stderr.String(), err); !strings.HasPrefix(result, c.want) {
				return fmt.Errorf("%s: %s: %s: %s", c.account, c.args, result, stderr.String())
			}
			if strings.Contains(stdout.String(), "globex") {
				t.Errorf("%s: %s: %s", c.account, c.args, stdout.String())
			}
			return nil
		})
	}
}
